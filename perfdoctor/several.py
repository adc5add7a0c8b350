"""Steps that may be several: where nothing tells the passes of a loop apart, each ``with`` counts as one step."""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.diagnosis import NotExamined
from perfdoctor.scene.scene import Scene
from perfdoctor.scene.steps import Steps


def told_several(scene: Scene) -> Iterator[NotExamined]:
    """Says of how many backward passes a step consists, where that may be several steps."""
    for trainer in scene.roles.trainers:
        steps = scene.steps.get(trainer.pid)
        passes = 0 if steps is None else untold_passes(steps)
        if passes > 1:
            yield NotExamined(
                "steps",
                f"Each `with diagnose():` held about {passes} backward passes, and neither a loader nor an optimizer "
                "of torch's that would tell steps apart: all of it counts as one step. Shares are not affected.",
                "put the `with` around one step, or call step() of what it gives where a step ends",
            )
            return


def untold_passes(steps: Steps) -> int:
    """Backward passes in each step, rounded; 0 where a loader, an optimizer or ``step()`` told steps apart."""
    if not steps.all or steps.holds("optimizer"):
        return 0
    start, end = steps.all[0].start_ns, steps.all[-1].end_ns
    seen = [happened.what for happened in steps.happenings if start <= happened.time_ns <= end]
    if "fetch" in seen or "leave loop" in seen or seen.count("leave") < len(steps.all) - 1:
        return 0
    return round(seen.count("worked") / len(steps.all))
