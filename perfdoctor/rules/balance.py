"""Unequal ranks: what to do if one rank, one pipeline stage, or another rank in each step holds the others back."""

from perfdoctor.diagnosis import Fix

_SAME_KERNELS = Fix(
    "Tell slow hardware from more work",
    "If the same kernels on the same shapes take longer there, it is the hardware; if there are more or larger ones, "
    "it is the work.",
    "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,ECC   # on the slow rank's host and on another",
)
_LENGTHS = Fix(
    "Give all ranks batches of the same cost",
    "Samples of different lengths make another rank the slowest in each step, and all wait for it.",
    "Bucket samples by length, pack them, or fill batches by tokens instead of by samples.",
)


def balance_fixes(kind: str, culprit: int | None) -> list[Fix]:
    """Fixes for unequal ranks.

    Args:
        kind: ``rank``, ``stage``, ``changing`` or ``none``.
        culprit: number of the rank or stage, None where there is not a single one.
    """
    if kind == "rank":
        return [_SAME_KERNELS, _replace_host(culprit)]
    if kind == "stage":
        return [_move_layers(culprit)]
    return [_LENGTHS] if kind == "changing" else []


def _replace_host(rank: int | None) -> Fix:
    return Fix(
        f"Run without the GPU of rank {rank}",
        "One slow GPU sets the pace of all.",
        "Start the job again with that host left out, and see whether the slowness stays away.",
    )


def _move_layers(stage: int | None) -> Fix:
    return Fix(
        f"Move layers away from pipeline stage {stage}",
        "All stages wait for the one with the most work. The last one also computes the head and the loss.",
        "Megatron: --decoder-last-pipeline-num-layers N with fewer layers; torch.distributed.pipelining: split the "
        "model elsewhere.",
    )
