"""What the words of all languages have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from perfdoctor.results.stuck import Halt

_NAMED = 8  # as many numbers are taken in within a sentence


class Explanation(NamedTuple):
    """What is said of one cause at length.

    Attributes:
        goes: what happens in the time that it takes, after "62 % of the time"; "" for what is no bottleneck.
        means: what happens to a job that it holds back, in sentences.
        looks_like: what is easily taken for it, or it for that, and what distinguishes the two; goes on after "Looks
            like"; "" where nothing does.
        helps: what to change; goes on after "Helps:"; "" where nothing has to be.
        refuted: what would prove the finding wrong; goes on after "Refuted if"; "" where no test is known.
        title: what it is, as a short noun phrase; English has that in ``perfdoctor.causes``.
    """

    goes: str = ""
    means: str = ""
    looks_like: str = ""
    helps: str = ""
    refuted: str = ""
    title: str = ""


def first_ranks(ranks: Sequence[int], comma: str, more: str) -> str:
    """The numbers of the first ranks, and something that stands for the others."""
    return comma.join(map(str, ranks[:_NAMED])) + (more if len(ranks) > _NAMED else "")


def alike(halts: Sequence[Halt]) -> list[list[Halt]]:
    """Processes that stand at one place for one reason, to be told together; in the order of the first of each."""
    found: dict[tuple[object, ...], list[Halt]] = {}
    for one in halts:
        called = one.call, one.collective, one.sequence, one.group
        found.setdefault((one.own or one.name, one.kind, one.line, one.handling, *called), []).append(one)
    return list(found.values())


def in_common(halts: Sequence[Halt]) -> Halt:
    """What is true of all of several that are alike: they may wait for different files, and for different processes."""
    first = halts[0]
    target = first.target if all(one.target == first.target for one in halts) else ""
    others = first.others if all(one.others == first.others for one in halts) else None
    return replace(first, target=target, others=others)


def by_host(halts: Sequence[Halt]) -> dict[str, list[int]]:
    """The process ids of halts, each once, by the host on which they run."""
    found: dict[str, list[int]] = {}
    for one in halts:
        if one.watched and one.pid not in found.setdefault(one.host, []):
            found[one.host].append(one.pid)
    return found


def for_each(command: str, pids: Sequence[int], comma: str) -> str:
    """A command for each of some processes, as code.

    Args:
        command: with ``{}`` in place of the process.
        pids: the processes.
        comma: what stands between two commands.
    """
    return comma.join(f"`{command.format(pid)}`" for pid in pids)
