"""A watch for days, without the days: what is left to do when the job has ended."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from perfdoctor.capture.job import Job
from perfdoctor.monitor import monitor as monitors
from perfdoctor.monitor.folder import Folder
from perfdoctor.monitor.monitor import Monitor, Plan
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import BACKWARD_CALL, CountedCall
from perfdoctor.results.history import Happened, Incident

SLOWER = Incident(1, Happened.SLOWER, 50.0, recordings=("before.perfdoctor", "after.perfdoctor"))


def test_what_happened_last_is_compared_though_the_job_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    class Comparison:
        def __init__(self, arguments: Sequence[str]) -> None:
            self._looks = 0
            done.append(f"{arguments[0]} {Path(arguments[1]).name}")

        def cost_s(self) -> float | None:
            self._looks += 1
            return 1.0 if self._looks > 1 else None

        def said(self) -> None:
            done.append("ended by itself")

        def end(self) -> None:
            done.append("ended by force")

    def record(*_: object, **__: object) -> str:
        watch._reports.append(SLOWER)
        return "job ended"

    monkeypatch.setattr(monitors, "Apart", Comparison)
    monkeypatch.setattr(monitors, "record", record)
    monkeypatch.setattr(monitors, "STEPS_EVERY_S", 0.0)
    monkeypatch.setattr(monitors, "_MARGIN_S", 0)  # the job is this process, which has not come again
    watch = Monitor(Folder(tmp_path, 1_000_000), Plan(wait_s=0.0), lambda _: None)
    watch.run(os.getpid())
    assert done == ["compare before.perfdoctor", "ended by itself"]


def test_a_step_that_does_not_end_is_looked_at_again_whenever_it_has_become_twice_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Monitor(Folder(tmp_path, 1_000_000), Plan(), lambda _: None)
    calls = [CountedCall(at * NS_PER_S // 10, 1, 1, BACKWARD_CALL) for at in range(1, 22)]
    watch._beats.take(calls)
    watch._job = Job(os.getpid())
    watch._next_s = float("inf")
    now = calls[-1].time_ns
    monkeypatch.setattr(monitors, "now_ns", lambda: now)
    monkeypatch.setattr(monitors, "_AGAIN_AFTER_S", -1.0)
    monkeypatch.setattr(monitors, "Attaching", lambda *_: None)
    looked_s = []
    for silent_s in range(1, 100):
        now = calls[-1].time_ns + silent_s * NS_PER_S
        if watch._cause_to_watch(now) == "long step":
            watch._begin_window("long step")
            looked_s.append(silent_s)
    assert looked_s == [3, 7, 15, 31, 63]
