"""What the words of all languages have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from perfdoctor.results import stuck as kinds
from perfdoctor.results.stuck import FROZEN, Halt

OPENS = ("open", "openat", "openat2")
# What a program that does not end may sit in so that it helps to say what to do about that, whatever the program is.
_OF_PROGRAMS = (kinds.STOPPED, kinds.FILE_LOCK, kinds.PIPE, kinds.SOCKET, kinds.STORAGE, kinds.TERMINAL)
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
        called = one.call, one.collective, one.sequence, one.group, one.target.startswith(FROZEN) and one.target
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


def by_advice(kind: str, ends: Sequence[Halt]) -> dict[tuple[str, str], list[Halt]]:
    """The processes to do something about, by what is to be done and on which host; each once.

    Args:
        kind: of the verdict.
        ends: where they stand.
    """
    found: dict[tuple[str, str], list[Halt]] = {}
    for one in ends:
        listed = found.setdefault((_about(kind, one), one.host), [])
        if one.watched and all(one.pid != other.pid for other in listed):
            listed.append(one)
    return {key: halts for key, halts in found.items() if halts}


def _about(kind: str, end: Halt) -> str:
    """What to advise about one process: of a program for which a rank waits, about what that sits in."""
    about = end.kind if kind == kinds.CHILD and end.kind in _OF_PROGRAMS else kind
    return "frozen" if about == kinds.STOPPED and end.target.startswith(FROZEN) else about


def for_each(command: str, pids: Sequence[int], comma: str) -> str:
    """A command for each of some processes, as code.

    Args:
        command: with ``{}`` in place of the process.
        pids: the processes.
        comma: what stands between two commands.
    """
    return comma.join(f"`{command.format(pid)}`" for pid in pids)
