"""Whose work a queue for cores is charged to."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.counters import Counter
from perfdoctor.timeline.cpu_contention import CpuContention
from perfdoctor.timeline.thread_kinds import Kind

SECONDS = 10
TRAINER, WORKER = 1, 2


class Readings:
    """Counters that grow at a steady rate, and levels."""

    def __init__(self, allowed: float, idle: float) -> None:
        times = np.array([0.0, SECONDS * NS_PER_S])
        self._all = {
            (f"pid:{TRAINER}", "allowed_cores"): Counter(times, np.array([allowed, allowed])),
            ("host", "idle_seconds_total"): Counter(times, np.array([0.0, idle * SECONDS])),
            ("host", "neighbours_seconds_total"): Counter(times, np.zeros(2)),
        }

    def get(self, subject: str, name: str) -> Counter | None:
        return self._all.get((subject, name))

    def subjects(self, name: str) -> list[str]:
        return []


def why_delayed(cores: float, idle: float, reachable: float = 2.0) -> dict[str, float]:
    """A trainer and a worker that get half of a core each of those that the job may use."""
    each = SimpleNamespace(use=lambda start, end: (cores / 2, cores / 2))
    by_tid = {TRAINER: SimpleNamespace(use=each.use, tid=TRAINER), WORKER: SimpleNamespace(use=each.use, tid=WORKER)}
    threads: Any = SimpleNamespace(by_tid=by_tid)
    processes: Any = SimpleNamespace(trainers=[SimpleNamespace(pid=TRAINER)])
    counters: Any = Readings(cores, idle)

    def kind_of(thread: Any) -> Kind:
        return "trainer" if thread.tid == TRAINER else "supplier"

    kinds: Any = SimpleNamespace(of=kind_of)
    contention = CpuContention(threads, processes, kinds, counters, cores, reachable)
    return contention.delay_parts(SECONDS * NS_PER_S // 2)


def test_workers_on_all_cores_of_the_host_take_them_for_the_input() -> None:
    why = why_delayed(cores=1.0, idle=0.0)
    assert why["cpu.input_preprocessing"] == pytest.approx(1, abs=0.01)
    assert why["cpu.contention"] == 0


def test_workers_on_a_narrow_mask_queue_because_of_it() -> None:
    why = why_delayed(cores=1.0, idle=0.9)
    assert why["cpu.contention"] == pytest.approx(1, abs=0.01)
    assert why["cpu.input_preprocessing"] == 0


def test_a_container_that_confines_everybody_is_no_mask_of_the_jobs_own() -> None:
    assert why_delayed(cores=1.0, idle=0.9, reachable=1.0)["cpu.contention"] == 0
