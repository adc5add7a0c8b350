"""Which part of a training step a Python stack is in, told from frames of torch and the standard library alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfdoctor.knowledge.frames import DOMINANT, HANDOVER, INNERMOST, LOCKS, ONLY_WAITING, WAITING, Frame, is_own

PHASES = (
    "data",
    "transfer",
    "forward",
    "loss",
    "backward",
    "gradient sync",
    "optimizer",
    "saving",
    "logging",
    "other",
)
TRAINING_PHASES = frozenset(("forward", "loss", "backward", "gradient sync", "optimizer"))

# What may lie between marks: calls of the model, of autograd, of optimizers and of loaders are always marked.
UNMARKED_PHASES = frozenset(("other", "loss", "transfer", "gradient sync", "saving", "logging"))


@dataclass(frozen=True, slots=True)
class Place:
    """What a stack tells.

    Attributes:
        phase: one of ``PHASES``.
        detail: a finer place inside it: ``fetch``, ``worker idle``, ``worker start``, ``hand over``, ``loader start``,
            ``loader wait``, ``sampling`` (the next indices are drawn, in the trainer), ``engine`` (autograd's, in C++
            and without the interpreter lock), ``collective``, ``data parallel``, ``compile``, ``PREPARES``,
            ``AFTERWARDS`` (both are set by ``perfdoctor.timeline.loop_position``) or "".
        waits: the innermost frame may block (a queue, a lock, a pipe, a socket).
        only_waits: it does nothing else, so a thread that runs is not there.
        line: the innermost line of the job's own code, ``file:line function``; "" if there is none.
    """

    phase: str
    detail: str = ""
    waits: bool = False
    only_waits: bool = False
    line: str = ""


UNKNOWN = Place("other")
# Details of code in the loop itself that prepares a step's input, and that uses the model's output.
PREPARES = "prepares"
AFTERWARDS = "afterwards"


def locate(frames: Sequence[Frame]) -> Place:
    """Tells the place of a stack.

    Args:
        frames: outermost call first.
    """
    if not frames:
        return UNKNOWN
    leaf = frames[-1]
    line = own_line(frames)
    phase, detail = _phase(frames)
    waits = any(rule.matches(leaf) for rule in WAITING)
    return Place(phase, detail, waits, any(rule.matches(leaf) for rule in ONLY_WAITING), line)


def agrees(place: Place, phase: str, *, told: bool) -> bool:
    """Whether a sampled stack can belong to an instant of which the phase was marked from inside.

    Args:
        place: what the stack tells.
        phase: the marked phase.
        told: it was marked itself; otherwise the instant lies between marks, in the user's own code.
    """
    if told:
        return place.phase == phase
    return place.phase in UNMARKED_PHASES


def marked_place(phase: str, detail: str, sampled: Place, *, told: bool) -> Place:
    """The place at an instant of which the phase was marked, with what a sampled stack adds.

    Args:
        phase: the marked phase.
        detail: a finer place inside it, "" where the marks do not tell.
        sampled: what the stack nearest to the instant tells, ``UNKNOWN`` if there is none that agrees.
        told: as for ``agrees``.
    """
    if not told and sampled.phase != "other":
        return sampled
    # A loader's mark spans the drawing of indices as well as the wait for a batch.
    detail = "sampling" if sampled.detail == "sampling" else detail or sampled.detail
    return replace(sampled, phase=phase, detail=detail)


def _phase(frames: Sequence[Frame]) -> tuple[str, str]:
    for group in DOMINANT:
        for depth, frame in enumerate(frames):
            for rule in group:
                if rule.matches(frame):
                    return rule.phase, _data_detail(rule.detail, frames[depth:])
    for frame in reversed(frames):
        for rule in INNERMOST:
            if rule.matches(frame):
                in_engine = rule.phase == "backward" and frame is frames[-1]
                return rule.phase, "engine" if in_engine else rule.detail
    return "other", ""


def _data_detail(detail: str, frames: Sequence[Frame]) -> str:
    """Refines the place inside the loader or a worker by the frames below it."""
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
    """Whether the innermost frame queues for a multiprocessing lock."""
    return bool(frames) and LOCKS.search(frames[-1].file) is not None


def own_line(frames: Sequence[Frame]) -> str:
    """The innermost line of the user's own: no library's, and not perfdoctor's hooks; "" if there is none."""
    for frame in reversed(frames):
        if is_own(frame):
            return f"{frame.file}:{frame.line} {frame.function}"
    return ""
