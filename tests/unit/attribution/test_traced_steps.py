"""Traced steps joined to observed ones: what each of them knows better."""

from collections.abc import Mapping

import pytest

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.traced_steps import ObservedSteps, TracedSteps, join_traced, laid_over
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.processes import Process

COMPUTE, LAUNCH, PYTHON, SYNC = "gpu.compute", "cpu.kernel_launch", "cpu.python_overhead", "cpu.synchronization"
FETCH, READ, SAVE = "cpu.input_preprocessing", "io.storage_read", "io.checkpoint_write"
HOST, CONTENTION, UNKNOWN = "cpu.model_compute", "cpu.contention", "unattributed"


def account(
    *blocks: Mapping[str, float], waits: Mapping[tuple[int, int], Mapping[str, float]] | None = None
) -> Account:
    found = Account(Process(1, 1, 0, None, "trainer", 0, 0))
    found.own = {number: Amounts(amounts) for number, amounts in enumerate(blocks)}
    found.waits = {place: Amounts(amounts) for place, amounts in (waits or {}).items()}
    found.phases["forward"] = sum(sum(amounts.values()) for amounts in (*blocks, *found.waits.values()))
    return found


def traced(*slices: Mapping[str, float], step_s: float = 0.1, ordinary: tuple[float, ...] = ()) -> TracedSteps:
    return TracedSteps(account(*slices), ordinary or (1.0,) * len(slices), step_s)


def joined(trace: TracedSteps, sampled: Account, excess: Account | None = None, steps: int = 100) -> dict[str, float]:
    result = join_traced(trace, ObservedSteps(sampled, excess or account(), steps))
    assert result.causes().total == pytest.approx(sampled.causes().total)
    assert result.phases == sampled.phases
    return result.causes().fractions()


def test_ordinary_steps_are_composed_as_traced() -> None:
    shares = joined(traced({COMPUTE: 0.4, LAUNCH: 0.1}), account({HOST: 6.0, UNKNOWN: 4.0}))
    assert shares == pytest.approx({COMPUTE: 0.8, LAUNCH: 0.2})


def test_what_long_steps_hold_is_as_sampled() -> None:
    sampled = account({HOST: 9.0, SAVE: 1.0}, {HOST: 5.0, SAVE: 5.0})
    shares = joined(traced({COMPUTE: 0.5}), sampled, account({SAVE: 1.0}, {SAVE: 5.0}), steps=140)
    assert shares == pytest.approx({COMPUTE: 0.7, SAVE: 0.3})


def test_what_the_host_hides_behind_the_device_costs_nothing() -> None:
    """Logs that are written in each step while the GPU works: the steps take no longer for them."""
    shares = joined(traced({COMPUTE: 0.5}), account({HOST: 7.0, "io.log_write": 3.0}))
    assert shares == pytest.approx({COMPUTE: 1.0})


def test_long_steps_of_which_samples_tell_nothing_have_more_of_the_same() -> None:
    shares = joined(traced({COMPUTE: 0.3, SYNC: 0.2}), account({HOST: 10.0}), account({HOST: 2.0, UNKNOWN: 1.0}))
    assert shares == pytest.approx({COMPUTE: 0.6, SYNC: 0.4})


def test_a_host_that_drains_its_queue_now_and_then_has_no_excess() -> None:
    """Nine of ten steps only launch; in the tenth the host waits for the device, which is never idle."""
    sampled = account({HOST: 1.0, "io.log_write": 9.0})
    shares = joined(traced({COMPUTE: 0.5}), sampled, account({"io.log_write": 8.0}), steps=100)
    assert shares == pytest.approx({COMPUTE: 1.0})


def test_long_steps_cost_what_the_device_leaves_room_for() -> None:
    """The device works for 0.06 s a step, and a step takes 0.1 s in the mean."""
    trace = traced({COMPUTE: 0.3, LAUNCH: 0.2}, step_s=0.1)
    shares = joined(trace, account({HOST: 4.0, SAVE: 6.0}), account({SAVE: 6.0}), steps=100)
    assert shares[SAVE] == pytest.approx(0.4)
    assert shares[COMPUTE] == pytest.approx(0.6)


def test_the_profilers_own_slowdown_is_no_finding() -> None:
    """Traced steps took 0.2 s instead of 0.1: what the host launches was spread out by the profiler."""
    trace = traced({COMPUTE: 0.3, FETCH: 0.1, LAUNCH: 0.5, SYNC: 0.1}, step_s=0.2)
    shares = joined(trace, account({HOST: 10.0}))
    assert shares[COMPUTE] == pytest.approx(0.6)
    assert shares[FETCH] == pytest.approx(0.2), "waiting for a batch is not slowed"
    assert shares[LAUNCH] + shares[SYNC] == pytest.approx(0.2)
    assert shares[LAUNCH] / shares[SYNC] == pytest.approx(5)


def test_a_checkpoint_in_the_only_traced_step_weighs_as_often_as_it_came() -> None:
    """The device works for 0.1 s in each step; the traced one saved for a second, as one of fifty did."""
    trace = traced({COMPUTE: 0.1, SAVE: 1.0}, step_s=1.1)
    shares = joined(trace, account({HOST: 10.0, SAVE: 2.0}), account({SAVE: 2.0}))
    assert shares == pytest.approx({COMPUTE: 10 / 12, SAVE: 2 / 12})


def test_a_checkpoint_in_the_trace_is_not_counted_twice() -> None:
    """One of five traced steps saved for 0.5 s: that is left out, and samples tell how often it happens."""
    trace = traced({COMPUTE: 0.4}, {COMPUTE: 0.1, SAVE: 0.4, UNKNOWN: 0.1}, ordinary=(1.0, 0.0), step_s=0.2)
    shares = joined(trace, account({HOST: 9.5, SAVE: 0.5}), account({SAVE: 0.5}), steps=95)
    assert shares == pytest.approx({COMPUTE: 0.95, SAVE: 0.05})


def test_one_off_work_in_the_trace_is_none_of_other_steps() -> None:
    trace = traced({COMPUTE: 0.4, LAUNCH: 0.1, "cpu.startup": 0.5}, step_s=0.2)
    assert joined(trace, account({HOST: 10.0})) == pytest.approx({COMPUTE: 0.8, LAUNCH: 0.2})


def test_samples_tell_what_fetching_is() -> None:
    shares = joined(traced({COMPUTE: 0.25, FETCH: 0.25}), account({READ: 4.0, FETCH: 2.0, HOST: 4.0}))
    assert shares == pytest.approx({COMPUTE: 0.5, READ: 1 / 3, FETCH: 1 / 6})


def test_a_wait_for_the_device_that_looks_like_one_for_a_lock_is_told_by_the_trace() -> None:
    lock = "cpu.lock_contention"
    sampled = account({READ: 2.0, lock: 8.0})
    trace = traced({COMPUTE: 0.25, FETCH: 0.25})
    assert joined(trace, sampled, account({lock: 4.0})) == pytest.approx({COMPUTE: 0.5, READ: 0.5})
    sampled.awaited[0] = Amounts({lock: 2.0})
    shares = joined(trace, sampled)
    assert shares == pytest.approx({COMPUTE: 0.5, READ: 0.25, lock: 0.25}), "workers that queue for one are known"


def test_samples_tell_what_holds_up_launching() -> None:
    """The host got no core for a third of the time in which it wanted one: so much of its launching is contention."""
    shares = joined(
        traced({COMPUTE: 0.2, LAUNCH: 0.3}), account({HOST: 2.0, PYTHON: 2.0, CONTENTION: 2.0, UNKNOWN: 4.0})
    )
    assert shares == pytest.approx({COMPUTE: 0.4, LAUNCH: 0.4, CONTENTION: 0.2})


def test_contention_behind_the_device_costs_nothing() -> None:
    shares = joined(traced({COMPUTE: 0.5}), account({HOST: 6.0, CONTENTION: 4.0}))
    assert shares == pytest.approx({COMPUTE: 1.0})


def test_samples_tell_what_slows_the_device() -> None:
    sampled = account({COMPUTE: 6.0, "gpu.throttled": 2.0, HOST: 2.0})
    assert joined(traced({COMPUTE: 0.5}), sampled) == pytest.approx({COMPUTE: 0.75, "gpu.throttled": 0.25})


def test_samples_tell_for_whom_a_rank_waits() -> None:
    sampled = account({HOST: 6.0}, waits={(0, 1): {FETCH: 3.0, READ: 1.0}})
    trace = traced({COMPUTE: 0.3, "communication.unattributed_wait": 0.2})
    result = join_traced(trace, ObservedSteps(sampled, account(), 100))
    assert result.causes().fractions() == pytest.approx({COMPUTE: 0.6, FETCH: 0.3, READ: 0.1})
    assert result.waited_for() == pytest.approx({1: 4.0})


def test_steps_that_took_longer_than_the_traced_ones_hold_what_samples_show_more_of() -> None:
    """The disk was slow for most of the time, and quick while there was a profiler."""
    trace = traced({COMPUTE: 0.4, FETCH: 0.1})
    shares = joined(trace, account({HOST: 8.0, READ: 12.0}), steps=100)
    assert shares[COMPUTE] == pytest.approx(0.4)
    assert shares[READ] == pytest.approx(0.6)


def test_steps_that_took_longer_for_no_known_reason_have_more_of_the_same() -> None:
    shares = joined(traced({COMPUTE: 0.5}), account({HOST: 20.0}), steps=100)
    assert shares == pytest.approx({COMPUTE: 1.0})


def test_without_marked_steps_all_is_composed_as_traced() -> None:
    shares = joined(traced({COMPUTE: 0.25, LAUNCH: 0.25}, step_s=0.0), account({HOST: 10.0}), steps=0)
    assert shares == pytest.approx({COMPUTE: 0.5, LAUNCH: 0.5})


def test_an_empty_trace_and_an_empty_recording_are_no_error() -> None:
    assert join_traced(traced({}), ObservedSteps(account(), account(), 0)).causes() == {}
    assert join_traced(traced({COMPUTE: 1.0}), ObservedSteps(account(), account(), 10)).causes() == {}


def test_slices_are_laid_over_the_seconds_in_their_order() -> None:
    places = laid_over({3: 1.0, 4: 3.0}, [Amounts({(COMPUTE, None): 0.1}), Amounts(), Amounts({(LAUNCH, None): 0.1})])
    assert places[3] == pytest.approx({(COMPUTE, None): 1.0})
    assert places[4] == pytest.approx({(COMPUTE, None): 1.0, (LAUNCH, None): 2.0})
