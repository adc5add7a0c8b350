"""Which part of a training step a Python stack is in, determined from the frames of libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from perfdoctor.knowledge.frames import (
    DOMINANT,
    HANDOVER,
    INNERMOST,
    INSTALLED,
    LOCKS,
    ONLY_WAITING,
    RUNS_PROGRAMS,
    WAITING,
    WORKER_LOOP,
    Frame,
    FrameMeaning,
    calls_backward,
    is_own,
    package_of,
)
from perfdoctor.knowledge.halts import FILE_LOCKS_ASKED_FOR, RENDEZVOUS
from perfdoctor.knowledge.libraries import CHECKPOINTING, POOLS
from perfdoctor.knowledge.user_frames import user_frames

TRAINING_PHASES = frozenset(("forward", "loss", "backward", "gradient sync", "optimizer"))
# In these DistributedDataParallel and its like wait for other ranks without a frame of their own.
EXCHANGING_PHASES = frozenset(("forward", "backward", "optimizer"))

# What may lie between marks: calls of the model, of autograd, of optimizers and of loaders are always marked.
UNMARKED_PHASES = frozenset(("other", "loss", "transfer", "gradient sync", "saving", "logging"))


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """Where in the code a thread is, as a stack or marks show it.

    Attributes:
        phase: one of ``perfdoctor.knowledge.frames.PHASES``.
        detail: a finer location inside it: ``fetch``, ``worker idle``, ``worker start``, ``hand over``,
            ``loader start``, ``POOL`` (one of processes comes up or ends), ``loader wait``, ``sampling`` (the next
            indices are drawn, in the trainer), ``engine`` (autograd's, in C++ and without the GIL), ``collective``,
            ``data parallel``, ``compile``, ``profile``, ``recompute`` (of a forward pass, in the backward pass),
            ``clip`` (gradients are clipped or scaled back), ``ALLOCATOR`` (PyTorch's gives a device's memory back),
            ``PREPARES``, ``MAKES_LAYERS``, ``AFTERWARDS``, ``HOOK`` or "".
        waits: the innermost frame may block (a queue, a lock, a pipe, a socket).
        only_waits: it does nothing else, so a thread that runs is not there.
        line: the innermost line of the job's own code, ``file:line function``; "" if there is none.
        in_evaluation: it belongs to an evaluation, or to what an evaluation needs: its batches, its log
            (``perfdoctor.timeline.evaluation``).
        evaluates: of that, it belongs to the passes without gradients themselves.
        leads_to_backward: it is code of the job's own between the model's call and the backward pass, a loss for
            instance, or takes gradients that are part of one: the backward pass runs for its operations too.
        called_back: autograd calls code of the job's own in the middle of the backward pass: a hook, an operator's own
            backward pass, or a block that is computed anew.
        precedes_model: of code below a call of the model, a later line of the same function calls one too: it may
            prepare that, as a batch that an agent learns from after it has acted.
        runs_program: a program is started, or waited for until it ends.
        per_pass: where it prepares what all steps of a pass over the data share, in the loop around them; "" if it does
            not.
        tells_results: of code below the model's call, it is called to be given numbers that were read out of tensors.
    """

    phase: str
    detail: str = ""
    waits: bool = False
    only_waits: bool = False
    line: str = ""
    in_evaluation: bool = False
    evaluates: bool = False
    leads_to_backward: bool = False
    called_back: bool = False
    precedes_model: bool = False
    runs_program: bool = False
    per_pass: str = ""
    tells_results: bool = False

    @property
    def is_in_step(self) -> bool:
        """Whether it is known to belong to a step: what a job does at its start does not."""
        return self.phase != "other" or bool(self.detail) or self.leads_to_backward

    @property
    def part_of_step(self) -> str:
        """The phase, that of an evaluation as one."""
        return "evaluation" if self.evaluates else self.phase


UNKNOWN = CodeLocation("other")
# Details of code in the loop itself that prepares a step's input, and that uses the model's output; and of what torch
# calls in the middle of a pass to read something out of it.
PREPARES = "prepares"
MAKES_LAYERS = "makes layers"  # where it would prepare the input
AFTERWARDS = "afterwards"
HOOK = "hook"
POOL = "pool"
# A call that gives a device's memory back, which waits for the device and drives it.
ALLOCATOR = "allocator"


def is_beside(location: CodeLocation) -> bool:
    """Whether code of a step is below the model's passes, or reads out of them, and leads to no backward pass."""
    return location.detail in (AFTERWARDS, HOOK) and not (location.leads_to_backward or location.in_evaluation)


def location_of(frames: Sequence[Frame]) -> CodeLocation:
    """The location of a stack.

    Args:
        frames: outermost call first.
    """
    if not frames:
        return UNKNOWN
    leaf = frames[-1]
    line = own_line(_since_fork(frames))
    added = user_frames()
    phase, detail = _phase(frames, added.rows)
    waits = any(rule.matches(leaf) for rule in (*added.waiting, *WAITING))
    called_back = phase == "backward" and _is_called_back(frames)
    only_waits = any(rule.matches(leaf) for rule in ONLY_WAITING)
    runs_program = any(map(RUNS_PROGRAMS.matches, frames))
    return CodeLocation(phase, detail, waits, only_waits, line, called_back=called_back, runs_program=runs_program)


def agrees(location: CodeLocation, phase: str, *, marked: bool) -> bool:
    """Whether a sampled stack can belong to an instant of which the phase was marked from inside.

    Args:
        location: what the stack shows.
        phase: the marked phase.
        marked: it was marked itself; otherwise the instant lies between marks, in the user's own code.
    """
    if marked:
        return location.phase == phase
    return location.phase in UNMARKED_PHASES


def marked_location(phase: str, detail: str, sampled: CodeLocation, *, marked: bool) -> CodeLocation:
    """The location at an instant of which the phase was marked, with what a sampled stack adds.

    Args:
        phase: the marked phase.
        detail: a finer location inside it, "" where the marks do not say.
        sampled: what the stack nearest to the instant shows, ``UNKNOWN`` if there is none that agrees.
        marked: as for ``agrees``.
    """
    if not marked and sampled.phase != "other":
        return sampled
    # A loader's mark spans the drawing of indices as well as the wait for a batch.
    detail = "sampling" if sampled.detail == "sampling" else detail or sampled.detail
    return replace(sampled, phase=phase, detail=detail)


def _phase(frames: Sequence[Frame], added: Sequence[FrameMeaning]) -> tuple[str, str]:
    for group in (added, *DOMINANT, POOLS):
        for depth, frame in enumerate(frames):
            for rule in group:
                if rule.matches(frame):
                    return rule.phase, _data_detail(rule.detail, frames[depth:])
    for frame in reversed(frames):
        for rule in INNERMOST:
            if rule.matches(frame):
                if rule.phase in ("forward", "loss") and _runs_again(frames):
                    return "backward", "recompute"
                in_engine = rule.phase == "backward" and frame is frames[-1]
                return rule.phase, "engine" if in_engine else rule.detail
    return "other", ""


def _is_called_back(frames: Sequence[Frame]) -> bool:
    """Whether code of the job's own is below the backward pass."""
    begun = next((depth for depth, frame in enumerate(frames) if calls_backward([frame])), len(frames))
    return any(map(is_own, frames[begun:]))


def _runs_again(frames: Sequence[Frame]) -> bool:
    """Whether a checkpointed block runs its forward pass again, in the backward pass."""
    return any(CHECKPOINTING.search(frame.file) for frame in frames) and calls_backward(frames)


def _data_detail(detail: str, frames: Sequence[Frame]) -> str:
    """Refines the location inside the loader or a worker by the frames below it."""
    names = {frame.simple_name for frame in frames}
    files = [frame.file for frame in frames]
    if detail.startswith("loader") and "_next_index" in names:
        # The loader asks its sampler wherever a batch is handed out, with workers or without.
        return "sampling"
    if detail == "worker":
        if any(file.endswith("torch/utils/data/_utils/fetch.py") for file in files):
            return "fetch"
        if any(HANDOVER.search(file) for file in files):
            # Below the worker's loop itself: taking the next index, or handing a batch over.
            return "worker idle" if "get" in names and "put" not in names else "hand over"
        return "worker start" if len(frames) > 1 else "worker idle"
    if detail == "loader":
        if any(file.endswith("torch/utils/data/_utils/fetch.py") for file in files):
            return "fetch"
        if names & {
            "_shutdown_workers",
            "_get_iterator",
            "_reset",
            "__del__",
        } or "_MultiProcessingDataLoaderIter.__init__" in {frame.function for frame in frames}:
            return "loader start"
        if names & {"_try_get_data", "_get_data", "_next_data"}:
            return "hand over" if any(HANDOVER.search(file) for file in files) else "loader wait"
        return "fetch"
    return detail


def holds_lock_frame(frames: Sequence[Frame]) -> bool:
    """Whether the innermost frame queues for a multiprocessing lock, and not for what a process is to announce."""
    return bool(frames) and frames[-1].simple_name == "__enter__" and LOCKS.search(frames[-1].file) is not None


def asks_for_file_lock(frames: Iterable[Frame]) -> bool:
    """Whether a lock of a file is asked for somewhere on a stack, in a library that tries it again and again."""
    return any(row.matches(frame) for row in FILE_LOCKS_ASKED_FOR for frame in frames)


def place_of(frame: Frame) -> str:
    """A frame's line as all lines are told, ``file.py:12 function``."""
    return f"{frame.file}:{frame.line} {frame.function}"


def begins_at(frames: Sequence[Frame]) -> str:
    """The line of the function that a thread was started to run, where that is an installed library's; "" else."""
    first = next((frame for frame in frames if package_of(frame.file) != "threading"), None)
    return place_of(first) if first is not None and re.search(INSTALLED, first.file) else ""


def own_line(frames: Sequence[Frame]) -> str:
    """The innermost line of the user's own: no library's, and not perfdoctor's hooks; "" if there is none."""
    for frame in reversed(frames):
        if is_own(frame):
            return place_of(frame)
    return ""


def _since_fork(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames of a loader worker alone: above them a forked one still has those of the trainer that started it."""
    begun = (depth for depth, frame in enumerate(frames) if WORKER_LOOP.matches(frame))
    return frames[next(begun, 0) :]


def library_call(frames: Sequence[Frame]) -> str:
    """What the user's own code called of a library other than torch, as ``package function``; "" if nothing is named.

    Who makes an object calls its class. What libraries call in turn stands for functions that only pass a call on, as
    those of callable objects do; where nothing else is called, the innermost class of those.
    """
    within = ""
    for frame in _below_own(frames):
        package, function = package_of(frame.file), frame.function.removesuffix(".__init__")
        if package in ("", "torch", "python"):
            continue
        name = function.rpartition(".")[2]
        if not (name.startswith(("_", "<")) or "<locals>" in function or name == "forward"):
            return f"{package} {function}"
        of_class = function.partition(".")[0]
        if of_class != name and not of_class.startswith(("_", "<")):
            within = f"{package} {of_class}"
    return within


def awaits_ranks_to_come(frames: Sequence[Frame]) -> bool:
    """Whether the job's own code has called for a rendezvous; torch's ``record`` stands above all of it."""
    return any(row.matches(frame) for frame in _below_own(frames) for row in RENDEZVOUS)


def _below_own(frames: Sequence[Frame]) -> Sequence[Frame]:
    """What the innermost code of the job's own has called; all frames without any."""
    last = max((depth for depth, frame in enumerate(frames) if is_own(frame)), default=-1)
    return frames[last + 1 :]
