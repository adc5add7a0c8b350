"""What samples stand for after the passes over an account."""

import pytest

from perfdoctor.attribution.account import Account, Sampled
from perfdoctor.attribution.settled import settled_samples
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.processes import Process

TRAINER = Process(1, 0, 0, None, "trainer", 0, 0)


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
