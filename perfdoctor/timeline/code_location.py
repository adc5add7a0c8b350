"""Which part of a training step a Python stack is in, determined from the frames of libraries.

In a loop of the job's own, the order of lines says more: whoever is at a line above the one from which the model is
called prepares what it is called with, and whoever is below it uses what the model gave. Where next to all of a step
lies above it, no sample may have met the model's call: then the backward pass shows where it is, or the source does.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import (
    DOMINANT,
    HANDOVER,
    INNERMOST,
    LOCKS,
    ONLY_WAITING,
    RESULTS,
    WAITING,
    Frame,
    FrameMeaning,
    calls_backward,
    is_own,
    package_of,
    runs_training_loop,
)
from perfdoctor.knowledge.libraries import BACKWARD, CHECKPOINTING, GRADIENT
from perfdoctor.knowledge.user_frames import user_frames
from perfdoctor.recording.own_source import SourceCall
from perfdoctor.timeline.amounts import Amounts

TRAINING_PHASES = frozenset(("forward", "loss", "backward", "gradient sync", "optimizer"))

# What may lie between marks: calls of the model, of autograd, of optimizers and of loaders are always marked.
UNMARKED_PHASES = frozenset(("other", "loss", "transfer", "gradient sync", "saving", "logging"))


@dataclass(frozen=True, slots=True)
class CodeLocation:
    """Where in the code a thread is, as a stack or marks show it.

    Attributes:
        phase: one of ``perfdoctor.knowledge.frames.PHASES``.
        detail: a finer location inside it: ``fetch``, ``worker idle``, ``worker start``, ``hand over``,
            ``loader start``, ``loader wait``, ``sampling`` (the next indices are drawn, in the trainer), ``engine``
            (autograd's, in C++ and without the GIL), ``collective``, ``data parallel``, ``compile``,
            ``recompute`` (of a forward pass, in the backward pass), ``clip`` (gradients are clipped or scaled back),
            ``allocator`` (PyTorch's gives a device's memory back),
            ``PREPARES``, ``AFTERWARDS`` or "".
        waits: the innermost frame may block (a queue, a lock, a pipe, a socket).
        only_waits: it does nothing else, so a thread that runs is not there.
        line: the innermost line of the job's own code, ``file:line function``; "" if there is none.
        in_evaluation: it belongs to an evaluation, or to what an evaluation needs: its batches, its log
            (``perfdoctor.timeline.evaluation``).
        evaluates: of that, it belongs to the passes without gradients themselves.
        leads_to_backward: it is code of the job's own between the model's call and the backward pass, a loss for
            instance, or takes gradients that are part of one: the backward pass runs for its operations too.
        precedes_model: of code below a call of the model, a later line of the same function calls one too: it may
            prepare that, as a batch that an agent learns from after it has acted.
    """

    phase: str
    detail: str = ""
    waits: bool = False
    only_waits: bool = False
    line: str = ""
    in_evaluation: bool = False
    evaluates: bool = False
    leads_to_backward: bool = False
    precedes_model: bool = False

    @property
    def part_of_step(self) -> str:
        """The phase, that of an evaluation as one."""
        return "evaluation" if self.evaluates else self.phase


UNKNOWN = CodeLocation("other")
# Details of code in the loop itself that prepares a step's input, and that uses the model's output.
PREPARES = "prepares"
AFTERWARDS = "afterwards"


def is_beside(location: CodeLocation) -> bool:
    """Whether code of a step is below the model's passes and leads to no backward pass."""
    return location.detail == AFTERWARDS and not (location.leads_to_backward or location.in_evaluation)


def locate(frames: Sequence[Frame]) -> CodeLocation:
    """The location of a stack.

    Args:
        frames: outermost call first.
    """
    if not frames:
        return UNKNOWN
    leaf = frames[-1]
    line = own_line(frames)
    added = user_frames()
    phase, detail = _phase(frames, added.rows)
    waits = any(rule.matches(leaf) for rule in (*added.waiting, *WAITING))
    return CodeLocation(phase, detail, waits, any(rule.matches(leaf) for rule in ONLY_WAITING), line)


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
    for group in (added, *DOMINANT):
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


def own_line(frames: Sequence[Frame]) -> str:
    """The innermost line of the user's own: no library's, and not perfdoctor's hooks; "" if there is none."""
    for frame in reversed(frames):
        if is_own(frame):
            return f"{frame.file}:{frame.line} {frame.function}"
    return ""


# The calls that lead to a function, its file and its name.
Function = tuple[tuple[Frame, ...], str, str]


def with_loop_positions(
    stacks: Sequence[tuple[Frame, ...]],
    locations: Sequence[CodeLocation],
    main_threads: Iterable[Mapping[int, float]],
    calls: Sequence[SourceCall] = (),
) -> list[CodeLocation]:
    """Gives the details ``PREPARES`` and ``AFTERWARDS`` to locations of main threads in the job's own code.

    A stack in no phase of torch's is compared with those in which the model is called, in the innermost function of the
    job's own that they share: a line above all regular calls of the model prepares its input, and a line below the
    first uses its output; the latter also in a library's training loop, which calls the job's callbacks there. The same
    line shows nothing. Results that are sent, drawn or written there are logging. From the model's call to the line
    that starts the backward pass, what is at work for torch leads to that, as gradients do that stay in the graph.

    Args:
        stacks: the distinct stacks, outermost call first.
        locations: of each.
        main_threads: per main thread, how long it was seen in each stack, by the stack's index.
        calls: in the source of the job's own.
    """
    found = list(locations)
    written, in_graph = _backward_lines(calls), {(one.file, one.function) for one in calls if one.callee == GRADIENT}
    for amounts in main_threads:
        models, backwards = (_lines_of(phase, stacks, found, amounts) for phase in ("forward", "backward"))
        models = models or _calls_by_backward(stacks, found, amounts, backwards or _written(stacks, amounts, written))
        for number in amounts:
            stack = stacks[number]
            if found[number].phase == "backward" and _takes_gradients(stack, in_graph):
                found[number] = replace(found[number], leads_to_backward=True)
            elif _unclaimed(found[number]):
                side = _side(stack, models)
                logs = side == AFTERWARDS and any(row.matches(frame) for frame in stack for row in RESULTS)
                leads = side != PREPARES and not logs and _leads_to(backwards, stack, models)
                phase = "logging" if logs else "other"
                found[number] = replace(found[number], phase=phase, detail=side, leads_to_backward=leads)
    return found


def with_calls_below(
    stacks: Sequence[tuple[Frame, ...]],
    locations: Sequence[CodeLocation],
    main_threads: Iterable[Mapping[int, float]],
) -> list[CodeLocation]:
    """Marks what is below a call of the model and above another one; what evaluates is not made ready for by that.

    The arguments are those of ``with_loop_positions``; it is known of the locations which evaluate.
    """
    found = list(locations)
    for amounts in main_threads:
        trains = {number: amount for number, amount in amounts.items() if not found[number].in_evaluation}
        models = _lines_of("forward", stacks, found, trains)
        for number in trains:
            if found[number].detail == AFTERWARDS and _precedes(stacks[number], models):
                found[number] = replace(found[number], precedes_model=True)
    return found


def _lines_of(
    phase: str, stacks: Sequence[tuple[Frame, ...]], found: Sequence[CodeLocation], amounts: Mapping[int, float]
) -> dict[Function, Amounts[int]]:
    """At which lines of which functions a phase was, and for how long."""
    lines: dict[Function, Amounts[int]] = {}
    for number, amount in amounts.items():
        if found[number].phase == phase:
            for function, line in functions(stacks[number]):
                lines.setdefault(function, Amounts())[line] += amount
    return lines


def _takes_gradients(stack: Sequence[Frame], in_graph: Collection[tuple[str, str]]) -> bool:
    """Whether a backward pass was asked for by one of some functions, by file and name, and not by ``backward``."""
    return any(
        callee.function == GRADIENT and (caller.file, caller.simple_name) in in_graph
        for caller, callee in itertools.pairwise(stack)
    )


def _backward_lines(calls: Iterable[SourceCall]) -> dict[tuple[str, str], int]:
    """By file and function in the job's own source, the first line from which a backward pass is begun there."""
    lines: dict[tuple[str, str], int] = {}
    for call in calls:
        if call.callee == BACKWARD:
            place = call.file, call.function
            lines[place] = min(call.line, lines.get(place, call.line))
    return lines


def _written(
    stacks: Sequence[tuple[Frame, ...]], amounts: Mapping[int, float], written: Mapping[tuple[str, str], int]
) -> dict[Function, Amounts[int]]:
    """The lines, in functions that were seen, from which the source begins a backward pass."""
    return {
        function: Amounts({written[place]: 1.0})
        for number in amounts
        for function, line in functions(stacks[number])
        if (place := (function[1], Frame(function[1], function[2], line).simple_name)) in written
    }


def _calls_by_backward(
    stacks: Sequence[tuple[Frame, ...]],
    found: Sequence[CodeLocation],
    amounts: Mapping[int, float],
    backwards: dict[Function, Amounts[int]],
) -> dict[Function, Amounts[int]]:
    """The lines of a backward pass in place of the model's call, which no sample met.

    What leads from the call to the backward pass takes no longer than that, which computes two results where it
    computes one. So code above them that takes longer is none of it.
    """
    above = sum(amounts[at] for at in amounts if _unclaimed(found[at]) and _side(stacks[at], backwards) == PREPARES)
    passes = sum(amounts[at] for at in amounts if found[at].phase == "backward")
    return backwards if above > passes else {}


def _unclaimed(location: CodeLocation) -> bool:
    return location.phase == "other" and not location.detail and bool(location.line)


def _side(stack: tuple[Frame, ...], calls: dict[Function, Amounts[int]]) -> str:
    """On which side of the model's call a stack is in the innermost function that calls it; "" if on none."""
    for function, line in reversed(list(functions(stack))):
        if function in calls:
            first, frame = min(_regular(calls[function])), stack[len(function[0])]
            if line > first and (is_own(frame) or runs_training_loop(frame)):
                return AFTERWARDS
            return PREPARES if line < first and is_own(frame) else ""
    return ""


def _precedes(stack: tuple[Frame, ...], calls: Mapping[Function, Amounts[int]]) -> bool:
    """Whether a regular call of the model is below a stack, in the innermost function that calls it."""
    lines = (
        line < max(_regular(calls[function]))
        for function, line in reversed(list(functions(stack)))
        if function in calls
    )
    return next(lines, False)


def _leads_to(
    backwards: Mapping[Function, Amounts[int]], stack: tuple[Frame, ...], calls: Mapping[Function, Amounts[int]]
) -> bool:
    """Whether a stack of the job's own or torch's code is between the model's call and the last backward pass after it.

    Of a loop with several passes, a generator's and a discriminator's, what is between two of them leads to the next.
    """
    if package_of(stack[-1].file) not in ("", "torch"):
        return False
    for function, line in reversed(list(functions(stack))):
        if function in calls and function in backwards:
            return min(_regular(calls[function])) <= line <= max(_regular(backwards[function]))
    return False


def _regular(lines: Amounts[int]) -> Collection[int]:
    """Those lines that are not seen now and then only; all where each is."""
    often = [at for at, part in lines.fractions().items() if part >= thresholds.REGULAR_CALL]
    return often or lines


def functions(stack: tuple[Frame, ...]) -> Iterator[tuple[Function, int]]:
    """Each function on a stack, outermost first, and the line that it is at."""
    for depth, frame in enumerate(stack):
        yield (stack[:depth], frame.file, frame.function), frame.line
