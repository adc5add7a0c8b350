"""The optimizer's step: what it takes of the time, and how it takes less."""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.causes import KERNEL_LAUNCH
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.libraries import ADAGRAD, ADAM, FUSED, MULTI
from perfdoctor.knowledge.versions import FUSED_ON_CPU
from perfdoctor.rules.case import Case
from perfdoctor.rules.proposed import Gain, Proposed

# Optimizers that compute much less on a CPU in one call, and the part of it that goes: at least, likely, most.
OF_UPDATE = {ADAM: (0.56, 0.75, 0.88), ADAGRAD: (0.45, 0.65, 0.95)}


def fuse_optimizer(case: Case) -> Iterator[Advice]:
    """The optimizer's step in one call, where its own share of the time is large.

    Which of them have a fused one is known; others are not changed for one that trains otherwise. On a GPU their step
    can be compiled. Before PyTorch had fused ones for the CPU, several calls go over all parameters at once.
    """
    share, update = update_share(case), str(case.settings.get("update", ""))
    if share < thresholds.OPTIMIZER_SHARE or case.settings.get("optimizer") == FUSED:
        return
    trainer = case.loop == "transformers"
    if not case.uses_gpu and not case.has_torch(FUSED_ON_CPU):
        if update and not trainer and case.settings.get("optimizer") != MULTI:
            yield advise("optimizer.several_at_once", share=share, update=update)
    elif update and (update == ADAM or not trainer):
        yield advise("optimizer.fused", share=share, gpu=case.uses_gpu, trainer=trainer, update=update)
    elif case.uses_gpu and not trainer:
        yield advise("optimizer.compiled", share=share)


def update_share(case: Case) -> float:
    """What optimizers' steps take of the trainers' time, without the clipping of gradients before them."""
    return case.phase("optimizer") - case.mean_of("own_clipping")


def by_fused_update(fix: Proposed) -> Gain | None:
    """The calls of the optimizer's step, of which some stay, and the arithmetic of Adam's and Adagrad's on a CPU.

    That goes over memory a dozen times, where the fused one does once: steps of four sizes of models took 4.3 to 8.3
    times as long, AdamW's 2.3 to 7.9, so that 0.75 of them go, 0.56 to 0.88. Of Adagrad's 0.53 to 0.66 went in five,
    and nearly all in a job that had memory anew for it in each step. Of the calls about a half went in four jobs
    with small models (all measured). What other optimizers compute becomes cheaper at best.
    """
    if fix.cause == KERNEL_LAUNCH:
        return fix.frees_phases(fix["share"], 0.5, 0.85)
    calls = calls_of_update(fix.case)
    freed = OF_UPDATE.get(str(fix.case.settings.get("update")))
    if freed is not None and not fix.case.uses_gpu:
        arithmetic = max(0.0, fix.worked(fix["share"]) - calls)
        return Gain(
            *(part * arithmetic + of_calls * calls for part, of_calls in zip(freed, (0.3, 0.5, 0.8), strict=True))
        )
    known = any(trainer.number("own_updating") is not None for trainer in fix.case.trainers)
    return Gain(calls / 2, calls, max(calls, fix.worked(fix["share"]))) if known else None


def by_calls_for_several(fix: Proposed) -> Gain | None:
    """Of the calls that the optimizer's step makes for each parameter those that one call for several stands for.

    Of Adam's, AdamW's and SGD's steps of 40 small tensors 0.19 to 0.7 went, of large ones nothing (PyTorch 2.3, 2.6).
    """
    calls = calls_of_update(fix.case)
    return Gain(0.2 * calls, 0.4 * calls, 0.65 * calls) if calls else None


def by_sparse_gradients(fix: Proposed) -> Gain:
    """The update of rows that no batch touches: how large tables are beside the rest of the model is not known.

    Gradients of zeros are of tables, and what adds them up fetches memory besides: measured on one table that took
    nearly all of a job, zeros were 0.61 of the samples, the update 0.27 of the time, and 0.85 went.
    """
    update, zeros = fix.worked(fix["share"]), fix.worked(fix["zeros"])
    return Gain(0.8 * zeros, zeros + update / 2, 1.2 * zeros + update)


def calls_of_update(case: Case) -> float:
    """What the operators that an optimizer calls take besides what they compute; 0 where that is not known."""
    parts = [trainer.number("own_updating") for trainer in case.trainers]
    known = [part for part in parts if part is not None]
    return sum(known) / max(1, len(known))
