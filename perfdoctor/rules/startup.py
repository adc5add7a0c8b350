"""The job's start: what is done once. It is named with its own time, and says nothing about the steps that follow."""

from collections.abc import Iterator

from perfdoctor.causes import STARTUP
from perfdoctor.diagnosis import Advice, Message, advise, say
from perfdoctor.knowledge import thresholds
from perfdoctor.rules.case import Case
from perfdoctor.rules.rule import Rule


def _look_later(case: Case) -> Iterator[Advice]:
    if case.share(STARTUP) >= thresholds.WARMING_UP:
        yield advise("startup.trace_later")
    yield advise("startup.keep_caches", compiling=bool(case.number("traced_first_compiling")))


def _says_nothing_of_later(case: Case) -> Iterator[Message]:
    yield say("startup.not_projected", fills=case.share(STARTUP) >= thresholds.WARMING_UP)


def _nothing_is_freed(case: Case) -> float:
    """Later steps do none of it, so whatever it takes, training gets no faster without it."""
    return 1.0


STARTUP_RULES = (
    Rule(
        STARTUP,
        say("startup.done_once"),
        ("traced_startup", "traced_first_compiling", "traced_busy"),
        _look_later,
        say("startup.done_once_refuted"),
        remarks=_says_nothing_of_later,
        left=_nothing_is_freed,
    ),
)
