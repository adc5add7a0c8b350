"""Trials from inside, both ends: a training process whose steps take what is planted, and what tries changes in it."""

# ruff: noqa: TID253
import gc
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import get_native_id
from typing import Any

import pytest
import torch

from perfdoctor import causes
from perfdoctor.diagnosis import CauseShare, Diagnosis, NotExamined
from perfdoctor.messages import say
from perfdoctor.probes.inside.ring import RingWriter
from perfdoctor.probes.inside.setting_trials import SettingTrials
from perfdoctor.probes.inside.training_loop import TrainingLoop
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.results.treatment import Outcome, Training, Treated
from perfdoctor.treat.inside import treat_inside
from tests.builders.diagnoses import input_bound

MANY = 16
STEP_S = 0.002


def a_diagnosis(*among: str) -> Diagnosis:
    """One with some causes alone, of a job on two cores."""
    breakdown = tuple(CauseShare(cause, 1 / len(among)) for cause in among)
    return replace(input_bound(), breakdown=breakdown, findings=(), ranks=(), job={"settings": {"cores": "2"}})


class Job:
    """A training process whose steps take as long as it is told, by a clock of its own."""

    def __init__(self, step_s: Callable[[int], float], most: int = 10**7) -> None:
        self.settings: set[tuple[int, int]] = set()
        self._step_s = step_s
        self._most = most
        self._opened = threading.Event()
        self._thread = threading.Thread(target=self._train)

    @contextmanager
    def training(self) -> Iterator[socket.socket]:
        """While it trains; gives the sidecar's end."""
        self._thread.start()
        assert self._opened.wait(30)
        yield socket.socket(fileno=self._far_end)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _train(self) -> None:
        torch.set_num_threads(MANY)
        ring = RingWriter(get_native_id())
        loop = TrainingLoop(ring, lambda time_ns: None)
        # Its clock runs as fast as the steps are made: the patience of hours must not end while the sidecar thinks.
        trials = SettingTrials(10**6, loop, ring)
        self._far_end = trials.far_end()
        loop.enter()
        step, time_ns = 0, 0
        trials.begin(time_ns, STEP_S, step)
        self._opened.set()
        over = False
        while not over and step < self._most:
            self.settings.add((torch.get_num_threads(), gc.get_threshold()[0]))
            step, time_ns = step + 1, time_ns + round(self._step_s(step) * NS_PER_S)
            over = trials.step_ended(time_ns, step)
        trials.end()
        self.left = torch.get_num_threads(), gc.get_threshold(), gc.get_freeze_count()
        ring.handed_over()


def treated(job: Job, diagnosis: Diagnosis, *, exact: bool, minutes: float = 20) -> Treated:
    before = gc.get_threshold(), gc.get_freeze_count()
    with job.training() as channel, channel:
        made = treat_inside(diagnosis, channel, minutes, lambda changes: None, exact=exact)
    assert job.left == (MANY, *before)
    assert isinstance(made, Treated)
    return made


def noisy(step_s: Callable[[], float], seed: int = 0) -> Callable[[int], float]:
    chance = random.Random(seed)
    return lambda step: step_s() * chance.lognormvariate(0, 0.1)


def test_too_many_threads_are_found_and_taken_back() -> None:
    job = Job(noisy(lambda: STEP_S * (1 + torch.get_num_threads() / MANY)))
    made = treated(job, a_diagnosis(causes.CONTENTION), exact=False)
    assert made.best is not None
    assert made.best.id == "threads=1"
    assert made.best.measured is not None
    assert made.best.measured.low is not None
    assert made.best.measured.low > 1.5
    assert made.best.training is Training.ROUNDED
    assert {threads for threads, _ in job.settings} == {1, 2, MANY}


def test_what_may_round_differently_is_tried_only_if_that_was_asked_for() -> None:
    job = Job(noisy(lambda: STEP_S * torch.get_num_threads()))
    made = treated(job, a_diagnosis(causes.CONTENTION), exact=True)
    assert [trial.id for trial in made.not_asked] == ["threads=1", "threads=2"]
    assert (made.best, made.trials) == (None, ())
    assert {threads for threads, _ in job.settings} == {MANY}


def test_a_frozen_collector_is_found_though_the_job_evaluates_now_and_then() -> None:
    usual = gc.get_threshold()[0]
    jitter = noisy(lambda: STEP_S if gc.get_threshold()[0] != usual else 1.6 * STEP_S)
    job = Job(lambda step: jitter(step) + (0.1 if step % 700 == 0 else 0))
    made = treated(job, a_diagnosis(causes.GARBAGE_COLLECTION), exact=True)
    assert made.best is not None
    assert (made.best.id, made.best.training) == ("gc.freeze()", Training.UNTOUCHED)


def test_where_nothing_helps_nothing_is_kept_though_some_steps_are_long() -> None:
    """What comes back every so many steps must not fall into blocks of one kind."""
    kept = 0
    for seed in range(10):
        jitter = noisy(lambda: STEP_S, seed)
        job = Job(lambda step, jitter=jitter: jitter(step) + (1.0 if step % 2000 == 0 else 0))  # type: ignore[misc]
        made = treated(job, a_diagnosis(causes.CONTENTION, causes.GARBAGE_COLLECTION), exact=False)
        kept += made.best is not None
    assert kept <= 1


def test_a_first_block_that_is_slow_by_chance_closes_nothing() -> None:
    """As where a neighbour has the cores for a second."""
    jitter = noisy(lambda: STEP_S * (1 + torch.get_num_threads() / MANY))
    slow = iter(range(800))
    job = Job(lambda step: jitter(step) * (3 if torch.get_num_threads() < MANY and next(slow, None) is not None else 1))
    made = treated(job, a_diagnosis(causes.CONTENTION), exact=False)
    assert min(trial.measured.runs for trial in made.trials if trial.measured) > 1


def test_a_training_that_ends_leaves_what_was_found_until_then() -> None:
    jitter = noisy(lambda: STEP_S)

    def step_s(step: int) -> float:
        time.sleep(0.0005)  # else it may have ended before anything is asked of it
        return jitter(step)

    job = Job(step_s, most=3000)
    made = treated(job, a_diagnosis(causes.CONTENTION), exact=False)
    assert made.interrupted
    assert made.best is None
    assert {trial.outcome for trial in made.trials} <= {Outcome.UNDECIDED, Outcome.NOT_TRIED}


def test_a_sidecar_that_ends_in_the_middle_of_a_block_leaves_nothing_changed() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    job = Job(noisy(lambda: STEP_S))
    with job.training() as channel:
        channel.send(b'{"block": {"settings": {"threads": 3, "gc": [50000, 20, 20]}, "steps": 500, "limit_s": 60}}')
        channel.close()
    assert job.left == (MANY, *before)
    assert (3, 50_000) in job.settings


def test_a_setting_is_changed_only_inside_of_the_users_with() -> None:
    threads = torch.get_num_threads()
    ring = RingWriter(get_native_id())
    loop = TrainingLoop(ring, lambda time_ns: None)
    trials = SettingTrials(1.0, loop, ring)
    with socket.socket(fileno=trials.far_end()) as channel:
        trials.begin(0, STEP_S, 0)
        channel.send(b'{"block": {"settings": {"threads": 3}, "steps": 3, "limit_s": 60}}')
        trials.step_ended(1, 1)
        seen = []
        for step in (2, 3):
            seen.append(torch.get_num_threads())
            loop.enter()
            seen.append(torch.get_num_threads())
            loop.leave()
            trials.step_ended(step, step)
        seen.append(torch.get_num_threads())
        trials.end()
    ring.handed_over()
    assert seen == [threads, 3, threads, 3, threads]


@pytest.mark.parametrize("several", [{"job": {"world_size": 2}}, {"ranks": ({}, {})}])
def test_only_jobs_of_one_rank_are_treated(several: dict[str, Any]) -> None:
    diagnosis = replace(a_diagnosis(causes.CONTENTION), **several)
    job = Job(noisy(lambda: STEP_S))
    with job.training() as channel, channel:
        made = treat_inside(diagnosis, channel, 1, lambda changes: None, exact=False)
    assert isinstance(made, NotExamined)
    assert made.reason == say("treat.several_ranks")
    assert {threads for threads, _ in job.settings} == {MANY}


def test_a_training_that_has_ended_is_not_treated() -> None:
    job = Job(noisy(lambda: STEP_S), most=0)
    with job.training() as channel, channel:
        made = treat_inside(a_diagnosis(causes.CONTENTION), channel, 1, lambda changes: None, exact=False)
    assert isinstance(made, NotExamined)
    assert made.reason == say("treat.not_waiting")
