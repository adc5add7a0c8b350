"""What part of some lines' time follows a draw at random."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.own_draws import part_after_draws
from perfdoctor.recording.own_source import SourceDraw
from perfdoctor.timeline.stacks import Stacks
from tests.builders import jobs

DATA, TRAIN = "/home/me/data.py", "/home/me/train.py"
TORCH = "/v/lib/python3.11/site-packages/torch"
LOOP = Frame(TRAIN, "main", 20)
BACKWARD = (Frame(TRAIN, "main", 22), Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 630))
DECODE = (LOOP, Frame(DATA, "get", 5), Frame(DATA, "decode", 30))
ROTATE = (LOOP, Frame(DATA, "get", 7), Frame(DATA, "rotate", 40))
LINES = {f"{DATA}:30 decode": 3.0, f"{DATA}:40 rotate": 1.0}


def part(*draws: SourceDraw, lines: dict[str, float] = LINES) -> float | None:
    stacks = Stacks.read(jobs.stacks(1, BACKWARD, DECODE, ROTATE, times=30, every_s=0.01))
    return part_after_draws(stacks, draws, lines)


def test_what_is_called_after_a_draw_is_behind_it() -> None:
    assert part(SourceDraw(DATA, 6, 9, in_loop=False)) == pytest.approx(0.25)
    assert part(SourceDraw(DATA, 5, 9, in_loop=False)) == pytest.approx(1.0)
    assert part(SourceDraw(DATA, 31, 33, in_loop=False)) == 0.0


def test_what_a_function_that_trains_draws_before_its_loops_changes_no_sample() -> None:
    assert part(SourceDraw(TRAIN, 3, 30, in_loop=False)) == 0.0
    assert part(SourceDraw(TRAIN, 19, 23, in_loop=True)) == pytest.approx(1.0)


def test_of_lines_that_were_on_no_stack_nothing_is_known() -> None:
    assert part(lines={f"{DATA}:99 other": 1.0}) is None
