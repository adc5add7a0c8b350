"""Flame graphs: the calls of a process as boxes, as wide as their part of its time, coloured by cause."""

from collections.abc import Iterator
from dataclasses import dataclass

from perfdoctor.reports.palette import Palette
from perfdoctor.reports.text import brief, percent, shown_cause
from perfdoctor.reports.wording import label, page_words
from perfdoctor.results.activity import CodeNode, CodeTree

MAX_BOXES = 400  # a box is about 300 bytes of the page
# A box has a second colour from this part of its time on.
_MIXED = 0.15
_LONGEST_NAME = 80  # characters; judgement


@dataclass(frozen=True, slots=True)
class Box:
    """One function.

    Attributes:
        left: where it begins, in percent of the width.
        width: in percent.
        depth: 0 for the outermost.
        look: class of the colour of its largest cause.
        mixed: class of the next one, and from where on it fills the box, in percent; "" and 100 for none.
        says: function, place, share and causes in words.
    """

    left: float
    width: float
    depth: int
    look: str
    mixed: str
    until: float
    name: str
    says: str


@dataclass(frozen=True, slots=True)
class Flame:
    """A flame graph.

    Attributes:
        role: ``trainer`` or ``worker``.
        share: fraction of the process's time that is drawn.
        rows: how deep it is.
    """

    role: str
    rank: int
    pid: int
    share: float
    rows: int
    boxes: tuple[Box, ...]


def flame(tree: CodeTree, palette: Palette) -> Flame:
    """The flame graph of a process; of more than ``MAX_BOXES`` functions the smallest are left out."""
    found = list(_walk(tree.calls, 0.0, 0))
    # A caller is never smaller than what it calls, so that none is left out alone.
    largest = sorted(found, key=lambda item: (-item[0].share, item[2]))[:MAX_BOXES]
    kept = {id(node) for node, _, _ in largest}
    boxes = tuple(_box(node, left, depth, palette) for node, left, depth in found if id(node) in kept)
    share = sum(node.share for node in tree.calls)
    return Flame(tree.role, tree.rank, tree.pid, share, 1 + max((box.depth for box in boxes), default=0), boxes)


def _walk(nodes: tuple[CodeNode, ...], left: float, depth: int) -> Iterator[tuple[CodeNode, float, int]]:
    for node in nodes:
        yield node, left, depth
        yield from _walk(node.calls, left, depth + 1)
        left += node.share


def _box(node: CodeNode, left: float, depth: int, palette: Palette) -> Box:
    causes = list(node.causes.items())
    share = node.share or 1.0
    second = causes[1] if len(causes) > 1 and causes[1][1] >= _MIXED * share else None
    function, file = brief(node.function, _LONGEST_NAME), brief(node.file, _LONGEST_NAME)
    items = tuple(f"{_title(cause)} {percent(part)}" for cause, part in causes if part >= _MIXED * share)
    where = f"{function} ({_short(file)}:{node.line}) {percent(node.share)}"
    return Box(
        left=round(100 * left, 2),
        width=round(100 * node.share, 2),
        depth=depth,
        look=palette.of(causes[0][0]) if causes else "idle",
        mixed=palette.of(second[0]) if second else "",
        until=round(100 * causes[0][1] / share, 1) if second else 100,
        name=function,
        says=label("named", name=where, value=label("sequence", items=items)),
    )


def _title(cause: str) -> str:
    return shown_cause(cause) or page_words().WORDS["idle"]


def _short(file: str) -> str:
    """The last parts of a path, which say whose file it is."""
    return "/".join(file.split("/")[-3:])
