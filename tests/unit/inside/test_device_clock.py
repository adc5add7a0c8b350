"""The device's clock, on a stand-in for the device that this machine lacks."""

import time

import pytest

from perfdoctor.probes.inside import device_clock as device
from perfdoctor.probes.inside.device_clock import POOL, DeviceTimer, current_accelerator
from perfdoctor.probes.inside.ring import DEVICE, FORWARD, POINT, STEP
from tests.builders.stand_ins import MS, MarkList, Stream


def test_times_are_those_of_the_device_and_nobody_waits_for_them() -> None:
    stream = Stream()
    timer = DeviceTimer(stream)
    drains, times = stream.drains, []
    begun = time.monotonic_ns()
    timer.mark(times.append)
    stream.launch(80)
    timer.mark(times.append)
    timer.resolve()
    assert len(times) <= 1, "the device is not done yet"
    assert stream.drains == drains
    timer.drain()
    assert times[1] - times[0] >= 80 * MS
    assert times[0] == pytest.approx(begun, abs=40 * MS)
    assert 0 <= timer.error_ns < 40 * MS


def test_events_are_used_again_and_the_clock_holds() -> None:
    stream = Stream()
    timer = DeviceTimer(stream, pool=4)
    made, times = stream.made, []
    for _ in range(50):
        for _ in range(4):
            stream.launch(500)
            timer.mark(times.append)
        stream.end_ns -= 2000 * MS  # time passes at once
        for event, _ in timer._waiting:
            event.reached_ns -= 2000 * MS
        timer.resolve()
    assert stream.made == made
    assert len(times) == 200
    assert timer.skipped == 0
    assert times == sorted(set(times)), "the order of marks is kept, also of those between which the device did nothing"


def test_where_the_device_is_far_behind_marks_are_left_out() -> None:
    stream = Stream()
    timer, times = DeviceTimer(stream, pool=3), []
    stream.launch(50)
    for _ in range(5):
        timer.mark(times.append)
    assert timer.skipped == 2
    timer.drain()
    assert len(times) == 3


def test_while_a_graph_is_captured_nothing_is_recorded_or_asked() -> None:
    """The stand-in's events fail the test if they are."""
    stream = Stream()
    timer, times = DeviceTimer(stream), []
    timer.mark(times.append)
    stream.capturing = True
    timer.mark(times.append)
    timer.resolve()
    timer.drain()
    assert times == []
    assert timer.skipped == 1
    assert timer.drift() is None
    with pytest.raises(RuntimeError, match="capturing"):
        DeviceTimer(stream)
    stream.capturing = False
    timer.resolve()
    assert len(times) == 1


def test_drift_is_what_the_clocks_have_run_apart() -> None:
    stream = Stream()
    timer = DeviceTimer(stream)
    assert timer.drift() == pytest.approx(0, abs=20 * MS)
    timer._anchor_ns += 300 * MS
    assert timer.drift() == pytest.approx(300 * MS, abs=20 * MS)


def test_a_machine_without_an_accelerator_has_none() -> None:
    torch = pytest.importorskip("torch")
    if torch.accelerator.is_available():
        pytest.skip("there is one here")
    assert current_accelerator() is None
    assert POOL > 13 * 20


def test_a_step_that_lacks_marks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, ring = Stream(), MarkList()
    monkeypatch.setattr(device, "current_accelerator", lambda: stream)
    marks = device.DeviceMarks(ring)
    assert marks.begin()
    assert marks.step_ended(10**10), "the next step is timed"
    assert not marks.step_ended(10**10 + MS), "but not each of many short ones"
    assert marks.step_ended(10**10 + 60 * MS)
    forward = marks.marker(FORWARD)
    forward(1)
    stream.capturing = True
    forward(2)
    stream.capturing = False
    forward(3)
    marks._timer.drain()
    assert ring.times(FORWARD) == [1, 2, 3], "the host's marks stay"
    assert len(ring.times(FORWARD + DEVICE)) == 1
    assert len(ring.times(POINT + DEVICE | STEP, device.FIRST)) == 2
    assert marks.end()
    assert not marks.end()
    assert ring.said == []
