"""Passes over the accounts: a loader's slowest stage, the excess of late ranks, what samples stand for after them."""

import pytest

from perfdoctor.attribution.account import Account, Sampled
from perfdoctor.attribution.passes import going_with_the_largest, settled_samples
from perfdoctor.attribution.share import Share
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.processes import Process

READ, DECODE = "io.storage_read", "cpu.input_preprocessing"


def test_a_wait_ends_with_its_largest_cause() -> None:
    """A worker that reads for 90 ms and decodes for 10, a trainer that computes for 50."""
    first, going = going_with_the_largest({READ: 0.44, DECODE: 0.06}, {READ: 0.9, DECODE: 0.1}, used=0.3)
    assert first == READ
    # Reads that cost nothing end the wait of 0.5, decoding that costs nothing 0.1 of it.
    assert going == {DECODE: pytest.approx(0.8)}


def test_causes_of_equal_weight_share_a_wait() -> None:
    _, going = going_with_the_largest({READ: 0.25, DECODE: 0.25}, {READ: 0.5, DECODE: 0.5}, used=0.3)
    assert going == {DECODE: pytest.approx(0.0)}


def test_what_would_be_waited_for_nevertheless_is_kept() -> None:
    """The trainer computes for a tenth of the time, and decoding alone takes three."""
    _, going = going_with_the_largest({READ: 0.6, DECODE: 0.3}, {READ: 0.7, DECODE: 0.3}, used=0.1)
    assert going[DECODE] == pytest.approx((1 - 0.2 / 0.3) * (1 - 0.3 / 0.7))
    # And so it is where the job's work on all cores takes longer than a step without waits.
    _, going = going_with_the_largest({READ: 0.44, DECODE: 0.06}, {READ: 0.9, DECODE: 0.1}, used=0.6)
    assert going == {DECODE: 0.0}


def test_workers_that_idle_bound_nothing() -> None:
    """Whichever cause is relieved, the wait may end: none of them is the larger one's."""
    _, going = going_with_the_largest({READ: 0.12, DECODE: 0.08}, {READ: 0.2, DECODE: 0.1}, used=0.3)
    assert going == {DECODE: pytest.approx(0.0)}


def test_what_is_recharged_is_neither_lost_nor_made_up() -> None:
    account = Account(Process(1, 1, 0, None, "trainer", 0, None))
    account.add(0, 1.0, CodeLocation("data"), [Share(READ, 0.75, awaited=True), Share(DECODE, 0.25, awaited=True)])
    account.add(0, 1.0, CodeLocation("data"), [Share(DECODE, 1.0)])
    account = account.recharged({DECODE: 0.5}, READ)
    assert account.causes() == pytest.approx({READ: 0.875, DECODE: 1.125})


TRAINER = Process(1, 0, 0, None, "trainer", 0, 0)


def test_what_is_moved_takes_its_lines_along_whether_or_not_the_others_had_any() -> None:
    lines = {"a": Amounts({"train.py:4": 0.6, "train.py:5": 0.2}), "b": Amounts({"train.py:4": 0.1})}
    account = Account(TRAINER, own={0: Amounts({"a": 0.8, "b": 0.1})}, waits={(0, 1): Amounts({"a": 0.1})}, lines=lines)
    moved = account.moved("a", {"b": 0.75, "c": 0.25})
    assert moved.own[0] == pytest.approx({"b": 0.7, "c": 0.2})
    assert moved.waits[0, 1] == pytest.approx({"b": 0.075, "c": 0.025})
    assert moved.lines == {
        "b": pytest.approx({"train.py:4": 0.55, "train.py:5": 0.15}),
        "c": pytest.approx({"train.py:4": 0.15, "train.py:5": 0.05}),
    }


def settled(samples: list[dict[str, float]], final: dict[str, float]) -> list[dict[str, float]]:
    """The samples of one second, by an account that has other causes for it."""
    taken = [Sampled(number, Amounts(causes)) for number, causes in enumerate(samples)]
    account = Account(TRAINER, own={0: Amounts(final)}, samples=taken)
    found = settled_samples(account, 0, 1000)
    assert [sample.time_ns for sample in found] == list(range(len(samples)))
    return [dict(sample.causes) for sample in found]


def test_an_account_that_no_pass_changed_leaves_its_samples() -> None:
    samples = [{"a": 0.3, "b": 0.1}, {"b": 0.6}]
    assert settled(samples, {"a": 0.3, "b": 0.7}) == [pytest.approx(sample) for sample in samples]


def test_what_was_renamed_is_renamed_at_each_sample() -> None:
    assert settled([{"a": 0.4}, {"a": 0.1, "b": 0.5}], {"c": 0.5, "b": 0.5}) == [
        pytest.approx({"c": 0.4}),
        pytest.approx({"c": 0.1, "b": 0.5}),
    ]


def test_what_a_cause_loses_goes_to_those_that_gain_and_only_where_it_was() -> None:
    found = settled([{"wait": 0.6}, {"busy": 0.4}], {"wait": 0.3, "busy": 0.5, "late": 0.2})
    assert found == [pytest.approx({"wait": 0.3, "busy": 0.1, "late": 0.2}), pytest.approx({"busy": 0.4})]


def test_waits_for_other_ranks_count_and_sums_stay() -> None:
    samples = [Sampled(0, Amounts({"a": 0.25})), Sampled(500, Amounts({"b": 0.25}))]
    account = Account(TRAINER, own={0: Amounts({"a": 0.5})}, waits={(0, 1): Amounts({"b": 0.5})}, samples=samples)
    assert settled_samples(account, 0, 1000) == samples
