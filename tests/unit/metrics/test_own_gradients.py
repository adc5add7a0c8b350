"""How much of the time lies in a pass whose gradients nobody uses."""

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.own_gradients import part_in_call, unused_pass
from perfdoctor.recording.own_source import SourceCall
from tests.builders import jobs

CALL = SourceCall("/job/gan.py", 7, "fake = self.G(\n    noise,\n)", "G", "critic_step", False)
LOADER = SourceCall("/job/gan.py", 2, "DataLoader(held_out)", "DataLoader", "main", False)
MODULE = Frame("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", "_call_impl", 1750)


def test_what_a_call_takes_is_all_that_was_seen_below_it() -> None:
    outermost = Frame("/job/gan.py", "<module>", 60)
    inside = (outermost, Frame("/job/gan.py", "Gan.critic_step", 8), MODULE)
    elsewhere = (outermost, Frame("/job/gan.py", "Gan.generator_step", 30), MODULE)
    job = jobs.timeline([*jobs.process(10), *jobs.stacks(10, inside, inside, *[elsewhere] * 6, times=160)])
    part = part_in_call(job.stacks, CALL)
    assert part is not None
    assert abs(part - 0.25) < 0.02
    assert part_in_call(jobs.timeline(jobs.process(10)).stacks, CALL) is None


def test_other_calls_that_nothing_uses_are_no_passes() -> None:
    assert unused_pass([LOADER, CALL]) is CALL
    assert unused_pass([LOADER, CALL._replace(used=None)]) is None
