"""What the job's own source does again, or for nothing: a better way, in its own words."""

from collections.abc import Iterable, Iterator

import perfdoctor.knowledge.detours as detours
from perfdoctor.diagnosis import Advice, Fix, advise
from perfdoctor.metrics.by_function import owner_of
from perfdoctor.metrics.own_detours import CostlyDetour
from perfdoctor.rules.case import Case

# Advice about a line or a loop that is right where nothing better is known of it.
_ABOUT_LINES = (
    "interpreter.compute_rarely", "interpreter.cheaper_python", "interpreter.more_rarely", "interpreter.without_loop",
    "input.cheaper", "arithmetic.memory_bound",
)  # fmt: skip


def without_detours(fixes: Iterable[Fix | Advice], case: Case, cause: str) -> Iterator[Fix | Advice]:
    """Some fixes of a cause, and before them what its detours are to be replaced by, in the place of vaguer words."""
    yield from (_advice(one) for one in case.detours if one.cause == cause)
    lines = {line for one in case.detours for line in one.lines}
    # All that is done in functions which a detour calls goes with it.
    functions = {owner_of(line) for one in case.detours for line in one.lines if owner_of(line) != owner_of(one.line)}
    for fix in fixes:
        named = _named(fix) if isinstance(fix, Advice) and fix.message.id in _ABOUT_LINES else frozenset()
        if not named or not all(line in lines or owner_of(line) in functions for line in named):
            yield fix


def _advice(one: CostlyDetour) -> Advice:
    line, share, pieces = one.line, one.share, one.pieces
    match one.way:
        case detours.JOINED_CUT:
            return advise("detours.joined_cut", line=line, share=share, pieces=pieces)
        case detours.JOINED:
            return advise("detours.joined", line=line, share=share, pieces=pieces)
        case detours.ONE_HOT | detours.ONE_HOT_LAYER:
            return advise("detours.one_hot", line=line, share=share, pieces=pieces)
        case detours.TWO_PASSES:
            return advise("detours.two_passes", line=line, share=share, pieces=pieces)
        case detours.ONE_BY_ONE:
            return advise("detours.one_by_one", line=line, share=share, pieces=pieces)
        case detours.INDEXED_LATE:
            return advise("detours.indexed_late", line=line, share=share, pieces=pieces)
        case detours.ENLARGED:
            return advise("detours.enlarged", line=line, share=share, pieces=pieces)
        case detours.TURNED:
            return advise("detours.turned", line=line, share=share, pieces=pieces)
        case detours.ALL_PAIRS:
            return advise("detours.all_pairs", line=line, share=share, pieces=pieces)
        case detours.PAIRS_FORWARD:
            return advise("detours.pairs_forward", line=line, share=share, pieces=pieces)
        case detours.UNCHANGED:
            return advise("detours.unchanged", line=line, share=share, pieces=pieces)
        case detours.COPIED:
            return advise("detours.copied", line=line, share=share, pieces=pieces)
        case detours.AVERAGED:
            return advise("detours.averaged", line=line, share=share, pieces=pieces)
        case detours.DESCENDED:
            return advise("detours.descended", line=line, share=share, pieces=pieces)
        case detours.MADE_NEW:
            return advise("detours.made_new", line=line, share=share, pieces=pieces)
        case detours.CARRIED:
            return advise("detours.carried", line=line, share=share, pieces=pieces)
        case detours.MODULES_MADE:
            return advise("detours.modules_made", line=line, share=share, pieces=pieces)
        case detours.CHECKED:
            return advise("detours.checked", line=line, share=share, pieces=pieces)
        case detours.FORMATTED:
            return advise("detours.formatted", line=line, share=share, pieces=pieces)
        case detours.ACTIVATION:
            return advise("detours.activation", line=line, share=share, pieces=pieces)
        case detours.PROXIED:
            return advise("detours.proxied", line=line, share=share, pieces=pieces)
        case detours.ROTATED:
            return advise("detours.rotated", line=line, share=share, pieces=pieces)
        case detours.UNCACHED:
            return advise("detours.uncached", line=line, share=share, pieces=pieces)
        case detours.COMPUTED_AGAIN:
            return advise("detours.computed_again", line=line, share=share, pieces=pieces)
        case detours.WRITTEN_OUT:
            return advise("detours.written_out", line=line, share=share, pieces=pieces)
        case detours.WEIGHTS_UNUSED:
            return advise("detours.weights_unused", line=line, share=share, pieces=pieces)
        case detours.STACKED:
            return advise("detours.stacked", line=line, share=share, pieces=pieces)
        case _:
            return advise("detours.listed", line=line, share=share, pieces=pieces)


def _named(fix: Advice) -> frozenset[str]:
    """The lines that advice is about."""
    values = dict(fix.message.values)
    return frozenset((*values.get("lines", ()), *filter(None, [values.get("line")])))
