"""Which cause comes first, when none does, and who the straggler is."""

from dataclasses import replace

import pytest

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.share import Share
from perfdoctor.diagnosis import OUTSIDE, Advice, Evidence, Finding, advise
from perfdoctor.rules.case import Case
from perfdoctor.rules.confidence import agreement, most_confidence
from perfdoctor.rules.stragglers import late_rank, straggler
from perfdoctor.rules.verdict import first_cause, least_shares
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.processes import Process


@pytest.mark.parametrize(
    ("shares", "cause"),
    [
        ({"cpu.model_compute": 0.75, "io.storage_read": 0.25}, "io.storage_read"),
        ({"cpu.model_compute": 0.95, "io.storage_read": 0.05}, "cpu.model_compute"),
        ({"cpu.model_compute": 0.88, "cpu.python_overhead": 0.12}, "cpu.model_compute"),
        ({"cpu.model_compute": 0.5, "cpu.python_overhead": 0.5}, "cpu.python_overhead"),
        ({"cpu.input_preprocessing": 0.5, "cpu.lock_contention": 0.43}, "cpu.lock_contention"),
        ({"cpu.input_preprocessing": 0.6, "cpu.lock_contention": 0.15}, "cpu.input_preprocessing"),
        ({"unattributed": 0.8, "cpu.model_compute": 0.2}, None),
        ({"unattributed": 1.0}, None),
        ({}, None),
    ],
)
def test_first_cause(shares: dict[str, float], cause: str | None) -> None:
    assert first_cause(shares) == cause


def test_beside_a_gpu_only_what_leaves_it_idle_counts_as_the_hosts() -> None:
    assert first_cause({"cpu.gil_contention": 0.11, "cpu.model_compute": 0.89}) == "cpu.model_compute"
    assert first_cause({"cpu.gil_contention": 0.11, "gpu.compute": 0.89}) == "cpu.gil_contention"


CALLING = advise("interpreter.compile_model", sharded=False, recurrent=False, gpu=False)


@pytest.mark.parametrize(
    ("fixes", "share", "cause"),
    [
        ((CALLING, advise("interpreter.larger_batch", loader=True)), 0.25, "cpu.model_compute"),
        ((CALLING, advise("interpreter.larger_batch", loader=True)), 0.35, "cpu.python_overhead"),
        (
            (CALLING, advise("interpreter.without_loop", line="train.py:5 loss", share=0.2, computes=0.0)),
            0.25,
            "cpu.python_overhead",
        ),
    ],
)
def test_the_calls_of_any_small_model_are_no_bottleneck(fixes: tuple[Advice, ...], share: float, cause: str) -> None:
    """Unless they take more than sound jobs need, or something besides could be changed."""
    found = Finding("cpu.python_overhead", share, "medium", 1.1, "", fixes=fixes)
    least = least_shares([found], OUTSIDE)
    assert first_cause({"cpu.model_compute": 1 - share, "cpu.python_overhead": share}, least=least) == cause


def test_of_the_calls_of_any_small_model_counts_what_is_more_than_in_sound_jobs() -> None:
    shares = {"cpu.model_compute": 0.32, "cpu.python_overhead": 0.44, "cpu.input_preprocessing": 0.24}
    assert first_cause(shares) == "cpu.python_overhead"
    assert first_cause(shares, least={"cpu.python_overhead": 0.3}) == "cpu.input_preprocessing"
    assert (
        first_cause({**shares, "cpu.python_overhead": 0.5}, least={"cpu.python_overhead": 0.3}) == "cpu.python_overhead"
    )


@pytest.mark.parametrize(("gain", "cause"), [(2.0, "cpu.model_compute"), (1.2, "cpu.python_overhead")])
def test_calls_give_way_to_arithmetic_of_which_a_change_frees_more_than_they_take(gain: float, cause: str) -> None:
    """But for a change that is advised for the calls as well."""
    looped = advise("interpreter.several_at_once", line="train.py:5 forward")
    parts = replace(
        advise("arithmetic.take_parts_at_once", line="train.py:6 forward", share=0.5), predicted_speedup=gain
    )
    shares = {"cpu.model_compute": 0.73, "cpu.python_overhead": 0.27}
    findings = [
        Finding("cpu.python_overhead", 0.27, "medium", 1.1, "", fixes=(looped,)),
        Finding("cpu.model_compute", 0.73, "none", 1.0, "", fixes=(parts,)),
    ]
    assert first_cause(shares, least=least_shares(findings, OUTSIDE)) == cause
    both = replace(findings[0], fixes=(looped, parts))
    assert first_cause(shares, least=least_shares([both, findings[1]], OUTSIDE)) == "cpu.python_overhead"


def test_what_a_profiler_overstates_gives_way_where_it_hardly_leads() -> None:
    shares = {"cpu.kernel_launch": 0.25, "cpu.input_preprocessing": 0.24, "gpu.compute": 0.51}
    assert first_cause(shares) == "cpu.kernel_launch"
    assert first_cause(shares, level="traced") == "cpu.input_preprocessing"
    clear = {**shares, "cpu.kernel_launch": 0.40, "gpu.compute": 0.36}
    assert first_cause(clear, level="traced") == "cpu.kernel_launch"


def test_without_machine_code_calls_and_arithmetic_are_not_told_apart() -> None:
    blind = Case({}, (), {}, code_seen=False)
    assert most_confidence(blind, "cpu.model_compute", OUTSIDE) == 0.5
    assert most_confidence(blind, "io.storage_read", OUTSIDE) == 0.95


def _ledgers(cause: str, waits: tuple[tuple[int, int], ...], seconds: int = 20) -> list[Account]:
    accounts = [Account(Process(100 + rank, 1, 0, None, "trainer", 0, rank)) for rank in range(3)]
    for block in range(seconds):
        for account in accounts:
            account.add(block, 0.5, CodeLocation("forward"), [Share("cpu.model_compute", 1.0)])
        for victim, culprit in waits:
            accounts[victim].add(block, 0.5, CodeLocation("backward"), [Share(cause, 1.0, rank=culprit)])
    return accounts


def test_the_rank_that_all_wait_for_is_the_straggler() -> None:
    accounts = _ledgers("cpu.input_preprocessing", ((0, 2), (1, 2)))
    assert straggler(accounts, "cpu.input_preprocessing") == 2


def test_ranks_that_wait_for_each_other_have_no_straggler() -> None:
    accounts = _ledgers("cpu.input_preprocessing", ((0, 2), (1, 0), (2, 1)))
    assert straggler(accounts, "cpu.input_preprocessing") is None


@pytest.mark.parametrize(
    ("for_each", "late"),
    [([(0.85, 0.15)] * 10, 1), ([(12.0, 0.0), (0.2, 0.9), (0.4, 0.8), (0.3, 0.9)], None)],
)
def test_who_is_late_in_one_second_only_is_no_straggler(for_each: list[tuple[float, float]], late: int | None) -> None:
    """Five sixths of the waiting are for rank 1, in every second or in one of four."""
    accounts = [Account(Process(100 + rank, 1, 0, None, "trainer", 0, rank), sampled=200) for rank in range(2)]
    for block, (first, zeroth) in enumerate(for_each):
        for culprit, seconds in ((1, first), (0, zeroth)):
            waits = [Share("cpu.input_preprocessing", 1.0, rank=culprit)]
            accounts[1 - culprit].add(block, seconds, CodeLocation("backward"), waits)
    assert late_rank(accounts, 0.01) == late


def test_ranks_that_were_hardly_seen_have_no_straggler() -> None:
    unseen = [Account(Process(100 + rank, 1, 0, None, "trainer", 0, rank)) for rank in range(2)]
    assert late_rank(unseen, 0.1) is None


def test_ranks_of_a_sound_job_may_wait_a_little() -> None:
    accounts = _ledgers("cpu.model_compute", ((0, 2),))
    for account in accounts:
        account.add(0, 40.0, CodeLocation("forward"), [Share("cpu.model_compute", 1.0)])
    assert straggler(accounts, "cpu.model_compute") is None


def test_a_rank_with_much_more_work_is_named_although_its_cause_is_healthy() -> None:
    assert straggler(_ledgers("cpu.model_compute", ((0, 2), (1, 2))), "cpu.model_compute") == 2


def test_unequal_work_of_ranks_comes_before_a_smaller_illness() -> None:
    shares = {"cpu.model_compute": 0.7, "communication.bandwidth": 0.2, "cpu.python_overhead": 0.1}
    assert first_cause(shares) == "communication.bandwidth"
    assert first_cause(shares, {"cpu.model_compute": 0.1}) == "communication.bandwidth"
    assert first_cause(shares, {"cpu.model_compute": 0.33, "cpu.python_overhead": 0.05}) == "cpu.model_compute"


def test_agreement_is_high_for_a_steady_cause_and_low_for_a_fleeting_one() -> None:
    steady = _ledgers("io.storage_read", ((0, 2), (1, 2)))
    assert agreement(steady, "io.storage_read", OUTSIDE, {}) == 1
    fleeting = _ledgers("io.storage_read", ())
    for account in fleeting:
        account.add(0, 1.2, CodeLocation("data"), [Share("io.storage_read", 1.0)])
    assert 0 < agreement(fleeting, "io.storage_read", OUTSIDE, {}) < 0.9


@pytest.mark.parametrize(
    ("capability", "busy", "cause", "most"),
    [
        (None, None, "io.storage_read", 0.95),
        (9.0, 0.5, "gpu.compute", 0.7),
        (8.0, 0.5, "gpu.compute", 0.6),
        (9.0, None, "gpu.compute", 0.45),
        (9.0, None, "io.storage_read", 0.6),
    ],
)
def test_how_sure_a_verdict_from_outside_can_be(
    capability: float | None, busy: float | None, cause: str, most: float
) -> None:
    settings: dict[str, float | str] = {} if capability is None else {"gpus": 1, "compute_capability": capability}
    numbers = {} if busy is None else {"gpu_busy": Evidence("busy", busy, "of the time", "gpu")}
    assert most_confidence(Case({}, (), {}, numbers, settings), cause, OUTSIDE) == most
