"""The optimizer's step: what it takes of the time, and how it takes less."""

from collections.abc import Iterator

from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.libraries import ADAM, FUSED
from perfdoctor.rules.case import Case


def fuse_optimizer(case: Case) -> Iterator[Advice]:
    """The optimizer's step in one call, where its own share of the time is large.

    Which of them have a fused one is known; others are not changed for one that trains otherwise. On a GPU their step
    can be compiled.
    """
    share, update = update_share(case), str(case.settings.get("update", ""))
    if share < thresholds.OPTIMIZER_SHARE or case.settings.get("optimizer") == FUSED:
        return
    trainer = case.loop == "transformers"
    if update and (update == ADAM or not trainer):
        yield advise("optimizer.fused", share=share, gpu=case.uses_gpu, trainer=trainer, update=update)
    elif case.uses_gpu and not trainer:
        yield advise("optimizer.compiled", share=share)


def update_share(case: Case) -> float:
    """What optimizers' steps take of the trainers' time, without the clipping of gradients before them."""
    return case.phase("optimizer") - case.mean_of("own_clipping")
