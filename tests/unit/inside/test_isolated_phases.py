"""Isolated phases of ranks that are threads, in one store: when they begin, what they keep apart, how they end."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perfdoctor.probes.inside import isolated_phases as module
from perfdoctor.probes.inside.isolated_phases import STEPS, IsolatedPhases
from perfdoctor.probes.inside.ring import BACKWARD, BEGIN, COLLECTOR, END, FORWARD, OWN, POINT, SERIALISED, STEP
from perfdoctor.probes.inside.store_barrier import StoreBarrier
from tests.builders.stand_ins import MS, MarkList, Stream

torch = pytest.importorskip("torch")

# These ranks do not wait for each other in their steps, so one may get ahead by as long as it takes to run the other's
# thread: 0.1 s (`LEAD_S`) are 50 steps.
STEP_S = 0.002


class Rank:
    """One rank's loop: a forward and a backward pass in each step, and what a test adds.

    Attributes:
        ring: what it marked and said.
    """

    def __init__(self, *, extra: bool = False, forward: Callable[[], object] = lambda: None) -> None:
        self.ring = MarkList()
        self.isolated = IsolatedPhases(True, self.ring, self.rewire)
        self.marker = self.ring.marker
        self.extra, self.forward = extra, forward
        self.step = 0

    @property
    def marks(self) -> list[tuple[int, int]]:
        """Times and kinds, in order."""
        return sorted((time_ns, kind) for time_ns, kind, _ in self.ring.marks)

    @property
    def said(self) -> list[str]:
        return [str(words[1]) for words in self.ring.said]

    def rewire(self, marker: Any) -> None:
        self.marker = marker or self.ring.marker

    def mark(self, kind: int) -> None:
        self.marker(kind)(time.monotonic_ns())

    def train(self) -> bool:
        """One step; returns whether steps with isolated phases are over."""
        self.mark(BEGIN | FORWARD)
        self.forward()
        self.mark(END | FORWARD)
        if self.extra:
            self.mark(BEGIN | OWN)
            self.mark(COLLECTOR)
            self.mark(END | OWN)
        self.mark(BEGIN | BACKWARD)
        self.mark(END | BACKWARD)
        self.mark(POINT | STEP)
        self.step += 1
        return self.isolated.step_ended(time.monotonic_ns(), self.step)

    def run(self, most: int = 3000, ahead: int = 0) -> None:
        """Trains until all is over; the observed steps end after ``ahead`` steps."""
        self.step = ahead
        going = self.isolated.begin(time.monotonic_ns(), STEP_S, self.step)
        for _ in range(most):
            if not going:
                return
            time.sleep(STEP_S)
            going = not self.train()

    @property
    def made(self) -> int:
        """Steps between the borders of isolated ones."""
        kinds = [kind for _, kind in self.marks]
        if BEGIN | SERIALISED not in kinds or END | SERIALISED not in kinds:
            return 0
        inside = kinds[kinds.index(BEGIN | SERIALISED) : kinds.index(END | SERIALISED)]
        return inside.count(POINT | STEP)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    store = torch.distributed.HashStore()
    monkeypatch.setattr(module, "store_barrier", lambda: StoreBarrier(store, 2))
    monkeypatch.setattr(module, "current_accelerator", lambda: None)
    for name in ("LEAST_S", "MOST_S", "AGREE_S"):  # a busy machine may keep a thread from running for long
        monkeypatch.setattr(module, name, 10.0)
    yield
    for thread in threading.enumerate():
        if thread.name == "perfdoctor-barrier":
            thread.join(5)


@pytest.fixture
def impatient(group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks give up soon."""
    for name, seconds in (("LEAST_S", 0.5), ("MOST_S", 0.5), ("AGREE_S", 0.6)):
        monkeypatch.setattr(module, name, seconds)


def run(*parts: Callable[[], None]) -> None:
    threads = [threading.Thread(target=part) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("group")
def test_ranks_make_the_same_steps_though_one_is_ready_earlier() -> None:
    first, second = Rank(), Rank()
    run(first.run, lambda: second.run(ahead=2))
    assert (first.made, second.made) == (STEPS, STEPS)
    assert first.said == second.said == []
    assert first.step == second.step
    assert first.marker == first.ring.marker, "marks are made in the usual way again"


@pytest.mark.usefixtures("group")
def test_each_phase_begins_together() -> None:
    fast, slow = Rank(), Rank(forward=lambda: time.sleep(0.03))
    run(fast.run, slow.run)
    assert (fast.made, slow.made) == (STEPS, STEPS)
    begins = []
    for rank in (fast, slow):
        marks = rank.marks
        since = next(time_ns for time_ns, kind in marks if kind == BEGIN | SERIALISED)
        begins.append([time_ns for time_ns, kind in marks if kind == BEGIN | BACKWARD and time_ns > since][:STEPS])
    assert max(abs(one - other) for one, other in zip(*begins, strict=True)) < 20 * MS


@pytest.mark.usefixtures("group")
def test_what_only_one_rank_has_is_no_place_to_meet() -> None:
    first, second = Rank(extra=True), Rank()
    run(first.run, second.run)
    assert (first.made, second.made) == (STEPS, STEPS)
    assert first.said == second.said == []


@pytest.mark.usefixtures("group")
def test_a_rank_that_ends_leaves_the_other_alone() -> None:
    first, second = Rank(), Rank()

    def end_early() -> None:
        second.isolated.begin(time.monotonic_ns(), STEP_S, 0)
        while second.made == 0 and BEGIN | SERIALISED not in [kind for _, kind in second.marks]:
            time.sleep(STEP_S)
            second.train()
        second.isolated.end()

    run(first.run, end_early)
    assert first.made < STEPS
    assert first.marker == first.ring.marker
    (why,) = first.said
    assert "Another rank had given up." in why
    assert "The training ended before all steps were made." in second.said[0]


@pytest.mark.usefixtures("impatient")
def test_a_rank_that_is_not_watched_is_waited_for_while_training_goes_on() -> None:
    alone = Rank()
    alone.run()
    assert alone.made == 0
    assert alone.said == ["No step was serialised. Not all ranks have looked at as many steps from inside."]
    assert alone.step > 20


@pytest.mark.usefixtures("impatient")
def test_a_rank_that_is_far_ahead_isolates_nothing() -> None:
    first, second = Rank(), Rank()
    run(first.run, lambda: second.run(ahead=500))
    assert (first.made, second.made) == (0, 0)
    assert len(first.said) == len(second.said) == 1, "each says why"


def test_alone_with_a_device_it_is_drained_at_each_border(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    monkeypatch.setattr(module, "store_barrier", lambda: None)
    monkeypatch.setattr(module, "current_accelerator", lambda: stream)
    rank = Rank(forward=lambda: stream.launch(5))
    rank.run()
    assert rank.made == STEPS
    assert rank.said == []
    marks = rank.marks
    since = next(time_ns for time_ns, kind in marks if kind == BEGIN | SERIALISED)
    begins = [time_ns for time_ns, kind in marks if kind == BEGIN | FORWARD and time_ns > since]
    ends = [time_ns for time_ns, kind in marks if kind == END | FORWARD and time_ns > since]
    assert min(end - begin for begin, end in zip(begins, ends, strict=True)) >= 5 * MS
    assert stream.drains == 1 + 5 * STEPS


def test_without_a_device_and_other_ranks_nothing_is_done() -> None:
    rank = Rank()
    assert not rank.isolated.begin(0, 0.02, 10)
    assert rank.marks == rank.said == []


def test_a_device_that_cannot_be_drained_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    monkeypatch.setattr(module, "store_barrier", lambda: None)
    monkeypatch.setattr(module, "current_accelerator", lambda: stream)
    rank = Rank(forward=lambda: setattr(stream, "broken", "it is lost" if rank.step == 3 else ""))
    rank.run()
    assert rank.made == 2
    assert rank.said == ["Only 2 of 4 steps were serialised. The device cannot be drained: RuntimeError: it is lost"]
    assert rank.marker == rank.ring.marker
