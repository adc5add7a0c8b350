"""Who trains, and when it is another one: whichever launcher stays, and whether steps are counted or not."""

import os
from collections.abc import Collection

import pytest

from perfdoctor.monitor.trainers import Trainers, find_trainers
from perfdoctor.results.history import Appeared

ENDED, AGAIN = Appeared.ENDED, Appeared.STARTED_AGAIN
LAUNCHER = 1
# What is there tick by tick: torch's processes, whose steps are counted (0 for none), and what is said of that.
Tick = tuple[set[int], int, tuple[Appeared, int] | None]
CASES: dict[str, list[Tick]] = {
    "one that goes on": [({5}, 0, None), ({5}, 5, None), ({5, 6}, 5, None)],
    "ranks below one launcher": [
        *(({LAUNCHER}, 0, None), ({LAUNCHER, 5, 6}, 0, None), ({LAUNCHER, 6}, 0, None)),
        *(({LAUNCHER}, 0, (ENDED, 6)), ({LAUNCHER, 7}, 0, (AGAIN, 7)), ({LAUNCHER, 7, 8}, 0, None)),
        ({LAUNCHER}, 0, (ENDED, 7)),
    ],
    "the same, counted": [
        *(({LAUNCHER, 5, 6}, 0, None), ({LAUNCHER, 5, 6}, 6, None), ({LAUNCHER, 5}, 6, (ENDED, 6))),
        # Another rank that waits for the one that is gone takes its place only if it makes steps.
        *(({LAUNCHER, 5}, 0, None), ({LAUNCHER}, 0, None), ({LAUNCHER, 7, 8}, 0, (AGAIN, 7))),
        *(({LAUNCHER, 7, 8}, 8, None), ({LAUNCHER, 7}, 8, (ENDED, 8)), ({LAUNCHER, 7}, 7, (AGAIN, 7))),
    ],
    "what is forked trains if it makes steps": [
        *(({5, 60}, 0, None), ({5, 60}, 60, None), ({5}, 60, (ENDED, 60))),
        *(({5, 61}, 0, None), ({5, 61}, 61, (AGAIN, 61))),
    ],
}


def find(pids: Collection[int]) -> frozenset[int]:
    """All but the launcher."""
    return frozenset(pids) - {LAUNCHER}


@pytest.mark.parametrize("ticks", CASES.values(), ids=CASES)
def test_a_trainer_that_is_another_one_is_told_once(ticks: list[Tick]) -> None:
    trainers = Trainers(find)
    found = [trainers.follow(pids, [pid for pid in pids if pid >= 60], counted) for pids, counted, _ in ticks]
    assert found == [said for *_, said in ticks]


def test_a_process_that_no_launcher_has_numbered_trains_itself() -> None:
    assert find_trainers([os.getpid(), 0]) == {os.getpid()}
