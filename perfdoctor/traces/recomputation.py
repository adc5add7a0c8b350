"""Activation checkpointing: forward work that the backward pass does again, and what it takes of the GPU's time."""

from __future__ import annotations

import re

import numpy as np

from perfdoctor.knowledge.kernels import Work
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.model import UNKNOWN, DeviceKind
from perfdoctor.traces.nesting import NONE, nest

# Where the forward pass runs again: PyTorch's frames (with stacks), or autograd's node of the reentrant variant.
_AGAIN = re.compile(
    r"torch/utils/checkpoint\.py\(\d+\): (recompute_fn|unpack_hook|backward)$|^CheckpointFunctionBackward$"
)
# What lies inside these again is the backward pass proper.
_BACKWARD = re.compile(
    r"^autograd::engine::evaluate_function: "
    r"|torch/autograd/(__init__|graph)\.py\(\d+\): (backward|_engine_run_backward)$"
)


def measure_recomputation(account: RankAccount) -> float | None:
    """Fraction of the kernels' time that is forward work done again; None where the trace tells of none."""
    trace = account.trace
    host, calls = trace.host, trace.calls
    again = trace.matching(_AGAIN, host.name)
    own = (trace.device.kind == DeviceKind.KERNEL) & (account.work != Work.COMMUNICATION)
    kernels = np.flatnonzero(own & (account.taken > 0))
    if not again.any() or not len(kernels) or not len(calls):
        return None
    passes = nest(host, again | trace.matching(_BACKWARD, host.name))
    call = account.launches[kernels]
    thread = np.where(call == UNKNOWN, UNKNOWN, calls.thread[call])
    inside = passes.innermost(thread, calls.start[call])
    repeated = (inside != NONE) & again[inside]
    taken = account.taken[kernels]
    return float(taken[repeated].sum() / taken.sum())
