"""Activation checkpointing: what it costs to do forward work again, where memory would allow to keep its results."""

from perfdoctor.diagnosis import Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.finding import REPORTED, freed
from perfdoctor.rules.lookups import memory_used
from perfdoctor.rules.wording import percent

# What a GPU's own work is booked on; recomputed work is in all of them.
_WORK = ("gpu.compute", "gpu.no_tensor_cores", "gpu.memory_bandwidth", "gpu.low_occupancy")
# With more of the memory in use than this, keeping all activations is not worth a try.
_FULL = 0.8

_SELECTIVE = """\
from functools import partial
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
kept = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default,
        torch.ops.aten._scaled_dot_product_flash_attention.default}
def policy(context, operator, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if operator in kept else CheckpointPolicy.PREFER_RECOMPUTE
checkpoint(block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, policy))"""
_FEWER = """\
x = checkpoint(block, x, use_reentrant=False) if number % 2 else block(x)  # every second block, then fewer
print(torch.cuda.max_memory_reserved() / torch.cuda.mem_get_info()[1])"""


def keep_activations(case: Case) -> list[Fix]:
    """What to keep instead of computing it again; nothing where traces show no such work, or little."""
    again = (case.number("traced_recomputed") or 0.0) * sum(map(case.share, _WORK))
    if again < REPORTED:
        return []
    used = memory_used(case)
    why = f"Checkpointed blocks run their forward pass again in the backward pass: {percent(again)} of the time. "
    fewer = Fix("Checkpoint fewer blocks, or none", why + _room(used), _FEWER, freed(again))
    selective = Fix(
        "Checkpoint selectively",
        "Matrix products and attention take most of a forward pass; kept, they need not be computed again, and "
        f"what is cheap to compute still needs no memory. The gain is part of the {percent(again)}.",
        _SELECTIVE,
        freed(again),
    )
    return [selective, fewer] if used is not None and used > _FULL else [fewer, selective]


def _room(used: float | None) -> str:
    """What is known about the memory that activations would need."""
    if used is None:
        return "How much memory is free was not seen: check it before, as activations that are kept need it."
    if used > _FULL:
        return f"{percent(used)} of the memory are in use, so not all activations will fit."
    return f"{percent(1 - used)} of the memory are free for activations that are kept."
