"""What one rank does and the others do not, while they wait for it."""

from typing import Any

import pytest

from perfdoctor.attribution.account import Account
from perfdoctor.causes import INPUT_PREPROCESSING, MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.diagnosis import Fix
from perfdoctor.reports.wording import worded_finding
from perfdoctor.rules import find
from perfdoctor.rules.case import Case, DoneAlone, Trainer
from perfdoctor.rules.done_alone import find_done_alone
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.processes import Process

MODEL, LOG, READ = "/job/net.py:20 Net.forward", "/job/train.py:49 log", "/job/data.py:7 Data.__getitem__"


def rank(number: int, waits: float, lines: dict[str, dict[str, float]]) -> Account:
    """One that was watched for 10 s, and waited for rank 0."""
    account = Account(Process(100 + number, 1, 0, None, "trainer", 0, number), phases=Amounts({"forward": 10.0}))
    account.lines = {cause: Amounts(amounts) for cause, amounts in lines.items()}
    if waits:
        account.waits = {(0, 0): Amounts({PYTHON_OVERHEAD: waits})}
    return account


def computing(log: float, model: float) -> dict[str, Any]:
    half = {MODEL: model / 2, LOG: log / 2}
    return {PYTHON_OVERHEAD: half, MODEL_COMPUTE: half}


def in_model(account: Account) -> Account:
    """The same with its log written in the model's forward pass."""
    account.passes[MODEL_COMPUTE, "forward"] = Amounts({LOG: 1.3})
    return account


def test_what_only_the_late_rank_is_at_is_why_it_is_late() -> None:
    found = find_done_alone([rank(0, 0.0, computing(2.6, 6.0)), rank(1, 2.5, computing(0.1, 7.0))])
    assert found is not None
    assert [line for line, _ in found.lines] == [LOG]
    assert (found.rank, found.share, found.waited) == (0, pytest.approx(0.26), pytest.approx(0.25))


@pytest.mark.parametrize(
    ("late", "other"),
    [
        # It does the same, and that takes longer there.
        (rank(0, 0.0, computing(0.0, 9.0)), rank(1, 2.5, computing(0.0, 6.0))),
        # A read takes time on the rank alone whose disk is slow; the others do it too.
        (rank(0, 0.0, {INPUT_PREPROCESSING: {READ: 3.0}}), rank(1, 2.5, {})),
        # What it does alone is little beside what it is waited for.
        (rank(0, 0.0, computing(0.6, 6.0)), rank(1, 2.5, computing(0.0, 6.0))),
        # It does many things, none of which stands out.
        (
            rank(0, 0.0, {PYTHON_OVERHEAD: {f"/job/train.py:{line} f{line}": 0.5 for line in range(5)}}),
            rank(1, 2.5, computing(0.0, 6.0)),
        ),
        # It is the model, on which the others are seldom seen: its batches are larger.
        (in_model(rank(0, 0.0, computing(2.6, 6.0))), rank(1, 2.5, computing(0.0, 3.0))),
        # Nothing was seen of who waits.
        (rank(0, 0.0, computing(2.6, 6.0)), Account(Process(101, 1, 0, None, "trainer", 0, 1))),
        # Nobody waits.
        (rank(0, 0.0, computing(2.6, 6.0)), rank(1, 0.1, computing(0.0, 9.0))),
    ],
)
def test_what_others_do_too_is_not_done_alone(late: Account, other: Account) -> None:
    assert find_done_alone([late, other]) is None


def test_it_is_the_first_fix_of_what_the_interpreter_takes() -> None:
    trainers = tuple(Trainer(number, 100 + number, {}, {}, {}, (), 0) for number in range(2))
    alone = DoneAlone(0, ((LOG, 0.26),), 0.26, 0.25)
    shares, culprits = {PYTHON_OVERHEAD: 0.44, MODEL_COMPUTE: 0.56}, {PYTHON_OVERHEAD: (0, 1)}
    case = Case(shares, trainers, culprits, loops={}, done_alone=alone)
    finding = worded_finding(next(one for one in find(case)[0] if one.cause == PYTHON_OVERHEAD))
    first, evidence = finding.fixes[0], finding.evidence[-1]
    assert isinstance(first, Fix)
    assert first.title == f"Let rank 0 do less at {LOG}, or do it more rarely"
    assert first.predicted_speedup == pytest.approx(1 / 0.75)
    assert (evidence.name, evidence.value) == ("what rank 0 does and the others do not", f"{LOG} (26%)")
