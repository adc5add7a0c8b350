"""How much of the time lies in a pass whose gradients nobody uses, and behind a draw at random."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.own_source import part_after_draws, part_in_call, untrained_module, unused_pass
from perfdoctor.recording.own_source import SourceCall, SourceDraw
from perfdoctor.timeline.stacks import Stacks
from tests.builders import jobs

CALL = SourceCall("/job/gan.py", 7, "fake = self.G(\n    noise,\n)", "G", "critic_step", False)
LOADER = SourceCall("/job/gan.py", 2, "DataLoader(held_out)", "DataLoader", "main", False)
MODULE = Frame("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", "_call_impl", 1750)
DATA, TRAIN = "/home/me/data.py", "/home/me/train.py"
TORCH = "/v/lib/python3.11/site-packages/torch"
LOOP = Frame(TRAIN, "main", 20)
BACKWARD = (Frame(TRAIN, "main", 22), Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 630))
DECODE = (LOOP, Frame(DATA, "get", 5), Frame(DATA, "decode", 30))
ROTATE = (LOOP, Frame(DATA, "get", 7), Frame(DATA, "rotate", 40))
LINES = {f"{DATA}:30 decode": 3.0, f"{DATA}:40 rotate": 1.0}


def test_what_a_call_takes_is_all_that_was_seen_below_it() -> None:
    outermost = Frame("/job/gan.py", "<module>", 60)
    inside = (outermost, Frame("/job/gan.py", "Gan.critic_step", 8), MODULE)
    elsewhere = (outermost, Frame("/job/gan.py", "Gan.generator_step", 30), MODULE)
    job = jobs.timeline([*jobs.process(10), *jobs.stacks(10, inside, inside, *[elsewhere] * 6, times=160)])
    part = part_in_call(job.stacks, {10}, CALL)
    assert part is not None
    assert abs(part - 0.25) < 0.02
    assert part_in_call(jobs.timeline(jobs.process(10)).stacks, {10}, CALL) is None


def test_other_calls_that_nothing_uses_are_no_passes() -> None:
    assert unused_pass([LOADER, CALL]) is CALL
    assert unused_pass([LOADER, CALL._replace(used=None)]) is None


@pytest.mark.parametrize(
    ("text", "module"), [("self.teacher.eval()", "self.teacher"), ("old = Net(size=3).to(device).eval()", "old")]
)
def test_what_evaluates_with_gradients_is_told_as_it_is_written(text: str, module: str) -> None:
    told = SourceCall("/job/kd.py", 3, text, "eval", "main", False)
    assert untrained_module([LOADER, told]) == module
    assert untrained_module([LOADER, told._replace(used=None)]) == ""
    assert unused_pass([told, CALL]) is CALL


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
