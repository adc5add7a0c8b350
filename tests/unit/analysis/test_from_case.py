"""What a verdict promises."""

import pytest

from perfdoctor.analysis.from_case import build, describe_trainer
from perfdoctor.attribution.account import Account
from perfdoctor.causes import BANDWIDTH, MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.diagnosis import OUTSIDE, Diagnosis
from perfdoctor.reports.outline import outline
from perfdoctor.reports.wording import worded, worded_finding, worded_fixes
from perfdoctor.rules.case import Case
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.processes import Process

SETTINGS: dict[str, str | float] = {"cores": 4.0, "env.OMP_NUM_THREADS": "1"}


def rank(number: int, waits: float, exchange: float = 0.0) -> Account:
    """One that computes in each of ten seconds, and waits for the other for a part of them."""
    account = Account(Process(100 + number, 1, 0, None, "trainer", 0, number), phases=Amounts({"forward": 10.0}))
    own = {MODEL_COMPUTE: 1 - waits - exchange, BANDWIDTH: exchange}
    account.own = {second: Amounts(own) for second in range(10)}
    if waits:
        account.waits = {
            (second, 1 - number): Amounts({MODEL_COMPUTE: 0.7 * waits, PYTHON_OVERHEAD: 0.3 * waits})
            for second in range(10)
        }
    return account


def diagnosed(*accounts: Account, **settings: str) -> Diagnosis:
    trainers = tuple(describe_trainer(one, {}) for one in accounts)
    shares = Amounts.summed(one.causes() for one in accounts).fractions()
    return build(Case(shares, trainers, {}, settings={**SETTINGS, **settings}), accounts, OUTSIDE)


def test_ranks_that_wait_for_one_with_more_work_would_take_the_mean_of_all() -> None:
    """And not what another fix of the same finding brings, more threads for instance."""
    found = diagnosed(rank(0, 0.4), rank(1, 0.0))
    assert (found.verdict.cause, found.verdict.straggler_rank) == (MODEL_COMPUTE, 1)
    assert found.verdict.predicted_speedup == pytest.approx(1 / (1 - 0.2))
    first = worded_fixes(worded_finding(found.findings[0]))[0]
    assert (first.title, first.predicted_speedup) == ("Give all ranks equal work", pytest.approx(1 / (1 - 0.2)))
    assert outline(found).headline.startswith("Unequal ranks hold this job back, 1.2 times as fast if equal")


def test_stages_of_a_pipeline_get_more_pieces_instead_of_equal_work() -> None:
    found = diagnosed(rank(0, 0.4), rank(1, 0.4), pipeline="yes")
    assert "Stages of the pipeline wait for each other by turns" in worded(found.verdict.summary)
    fixes = worded_fixes(worded_finding(found.findings[0]))
    assert (fixes[0].title, fixes[0].predicted_speedup) == (
        "Split the batch into more micro-batches", pytest.approx(1 / (1 - 0.2))
    )  # fmt: skip
    assert not any("equal work" in fix.title for fix in fixes)


def test_equal_ranks_promise_nothing() -> None:
    found = diagnosed(rank(0, 0.0), rank(1, 0.0))
    assert (found.verdict.straggler_rank, found.verdict.predicted_speedup) == (None, 1.0)
    assert not any("equal work" in fix.title for fix in worded_fixes(worded_finding(found.findings[0])))


@pytest.mark.parametrize(
    ("exchange", "waits", "cause", "promised"),
    [
        (0.16, 0.18, MODEL_COMPUTE, 1 / (1 - 0.18)),  # they wait for each other longer than for what is sent
        (0.2, 0.18, BANDWIDTH, None),
        (0.0, 0.1, MODEL_COMPUTE, 1.0),  # as ranks do that are alike
    ],
)
def test_ranks_that_wait_for_each_other_by_turns(
    exchange: float, waits: float, cause: str, promised: float | None
) -> None:
    found = diagnosed(rank(0, waits, exchange), rank(1, waits, exchange))
    assert (found.verdict.cause, found.verdict.straggler_rank) == (cause, None)
    assert promised is None or found.verdict.predicted_speedup == pytest.approx(promised)
    assert ("Unequal ranks" in outline(found).headline) is (promised not in (None, 1.0))
