"""What a change of what ranks exchange frees, as fractions of the wall time."""

from __future__ import annotations

from perfdoctor.causes import MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.knowledge.libraries import DDP, DEEPSPEED, FULLY_SHARD, SHARDED
from perfdoctor.rules.case import Case
from perfdoctor.rules.proposed import Gain, Proposed

# Ranks that share the model gather its parameters for the forward and for the backward pass, and reduce gradients that
# are as large (FSDP, ZeRO 3): each is a third of the bytes.
OF_THREE = 1 / 3


def by_fewer_exchanges(fix: Proposed) -> Gain | None:
    """Three exchanges of gradients in four, or two; where ranks share the model, parameters go over as before.

    What the script exchanges beside DistributedDataParallel stays.

    DeepSpeed exchanges in each backward pass in some of its stages, and which one it is is not seen.
    """
    way = fix.case.settings.get("parallel")
    if way == DEEPSPEED:
        return None
    part = OF_THREE if way in SHARDED else of_layers(fix.case, fix.share) if way == DDP else 1.0
    return fix.frees(0.5 * part, 0.75 * part, 0.75 * part)


def of_objects(fix: Proposed) -> Gain:
    """What the script exchanges besides, where that is known to be a part of it, or all of it."""
    part = 1 - of_layers(fix.case, fix.share) if fix.case.exchanged_besides else 1.0
    return fix.frees(0.0, part, part)


def by_one_process(fix: Proposed) -> Gain:
    """All of the exchange, less what threads of one process lose that share what ranks computed side by side.

    Of seven jobs of two ranks, of which exchanges took 0.06 to 0.49, -0.13 to 0.72 went: small ones gain more, as calls
    are made for twice as many samples at once, and large ones and recurrent layers lose 0.15 to 0.3 of the rest.
    """
    return Gain(
        max(0.0, fix.share - 2 * _lost_in_one_process(fix.case)), freed_in_one_process(fix.case, fix.cause), fix.share
    )


def freed_in_one_process(case: Case, cause: str) -> float:
    """The fraction of the wall time that is likely to go with what a cause takes; 0 where it would rather be slower."""
    return max(0.0, case.share(cause) - _lost_in_one_process(case))


def _lost_in_one_process(case: Case) -> float:
    """What is likely to be lost: see ``by_one_process``."""
    return 0.15 * (case.share(MODEL_COMPUTE) + case.share(PYTHON_OVERHEAD))


def by_larger_units(fix: Proposed) -> Gain | None:
    """Half of the messages, where each unit that is sharded becomes twice as large.

    How full DistributedDataParallel's buckets are is not known.
    """
    return fix.frees(0.0, 0.5, 0.5) if fix["way"] == FULLY_SHARD else None


def by_smaller_groups(fix: Proposed) -> Gain:
    """What groups half as large save of the exchange of activations, of which gradients between groups take some again.

    Each of n ranks in a ring sends 2 (n - 1) / n of what is reduced, and a group's batch is half as large.
    """
    half = max(1, fix["world"] // 2)
    saved = of_layers(fix.case, fix.share) * (1 - (1 - 1 / half) / (1 - 1 / (2 * half)) / 2)
    return fix.frees(0.0, saved / 2, saved)


def by_smaller_all_to_all(fix: Proposed) -> Gain:
    """What groups half as large save of an all-to-all.

    Each of n ranks sends (n - 1) / n of what it has to others; gradients between groups take some of it again.
    """
    half = max(1, fix["world"] // 2)
    saved = of_layers(fix.case, fix.share) * (1 - (1 - 1 / half) / (1 - 1 / (2 * half)))
    return fix.frees(0.0, saved / 2, saved)


def half_of_layers(fix: Proposed) -> Gain:
    """Up to half of what layers exchange."""
    half = of_layers(fix.case, fix.share) / 2
    return fix.frees(0.0, half, half)


def of_layers(case: Case, share: float) -> float:
    """The part of an exchange that is for layers which ranks share, and not for what the script exchanges besides."""
    besides = sum(part for _, part in case.exchanged_besides)
    return max(0.0, 1 - besides / share) if share else 0.0
