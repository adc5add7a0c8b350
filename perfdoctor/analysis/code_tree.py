"""Where in the code a process's time goes, as a tree of calls in which every function has its causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perfdoctor.attribution.account import Sampled
from perfdoctor.knowledge.frames import Frame, is_own
from perfdoctor.results.activity import CodeNode, CodeTree
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process

# A function below this part of a process's time is too narrow to be drawn, and deeper calls are cut off.
_LEAST, _DEEPEST = 0.004, 48
# Parts of the time are known to a percent by as many samples; more, evenly chosen, take time and tell no more.
_ENOUGH = 5_000


@dataclass
class _Calls:
    """A function while samples are counted."""

    causes: Amounts[str] = field(default_factory=Amounts)
    lines: Amounts[int] = field(default_factory=Amounts)
    calls: dict[tuple[str, str], _Calls] = field(default_factory=dict)

    def to(self, frame: Frame) -> _Calls:
        return self.calls.setdefault((frame.function, frame.file), _Calls())


def code_tree(job: JobTimeline, process: Process, role: str, samples: Sequence[Sampled]) -> CodeTree:
    """The calls of a process's main thread.

    Args:
        job: the job.
        process: whose main thread it is.
        role: as of the tree.
        samples: what the thread did by cause; those without a stack near them are left out.

    Returns:
        The tree; without calls where no stack was seen.
    """
    stacks: dict[tuple[Frame, ...], Amounts[str]] = {}
    for sample in samples[:: 1 + len(samples) // _ENOUGH]:
        found = job.locator.stack_at(process.pid, sample.time_ns, job.observe(process, sample.time_ns))
        if found is not None and found[0]:
            stacks[found[0]] = Amounts.summed([stacks.get(found[0], {}), sample.causes])
    root = _Calls()
    skipped = _common_library_frames(list(stacks))
    for stack, causes in stacks.items():
        node = root
        for frame in stack[skipped : skipped + _DEEPEST]:
            node = node.to(frame)
            node.causes = Amounts.summed([node.causes, causes])
            node.lines[frame.line] += causes.total
    total = sum(causes.total for causes in stacks.values())
    return CodeTree(role, job.processes.rank_of(process), process.pid, _nodes(root, total))


def _common_library_frames(stacks: Sequence[tuple[Frame, ...]]) -> int:
    """With how many frames of libraries all stacks begin: launchers, which say nothing of where the time goes."""
    count = 0
    shortest = min(map(len, stacks), default=0)
    while count < shortest - 1:
        begins = {(stack[count].function, stack[count].file) for stack in stacks}
        if len(begins) > 1 or is_own(stacks[0][count]):
            break
        count += 1
    return count


def _nodes(parent: _Calls, total: float) -> tuple[CodeNode, ...]:
    """What a function calls, as fractions of the whole, largest first."""
    found = [
        CodeNode(
            function,
            file,
            max(node.lines, key=lambda line: node.lines[line]),
            {cause: amount / total for cause, amount in _largest_first(node.causes) if amount > 0},
            _nodes(node, total),
        )
        for (function, file), node in parent.calls.items()
        if total > 0 and node.causes.total >= _LEAST * total
    ]
    return tuple(sorted(found, key=lambda node: (-node.share, node.function, node.file)))


def _largest_first(causes: Amounts[str]) -> list[tuple[str, float]]:
    return sorted(causes.items(), key=lambda item: -item[1])
