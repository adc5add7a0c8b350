"""What else a finding could have been: the causes that look like it, and what was measured of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Evidence, Finding, LookAlike, NotExamined
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.look_alikes import LOOK_ALIKES, SEEN_BY, Alike
from perfdoctor.rules.case import Case

_NUMBERS = 2  # more do not make it clearer


def with_look_alikes(findings: Iterable[Finding], case: Case, unseen: Iterable[NotExamined]) -> tuple[Finding, ...]:
    """The findings with their look-alikes.

    Args:
        findings: of the case.
        case: what was measured.
        unseen: what was not examined; of causes that only these probes show, nothing is known.
    """
    blind = {item.probe for item in unseen if not item.too_brief}
    return tuple(replace(finding, look_alikes=tuple(_look_alikes(finding, case, blind))) for finding in findings)


def _look_alikes(finding: Finding, case: Case, blind: set[str]) -> Iterator[LookAlike]:
    for alike in LOOK_ALIKES.get(finding.cause, ()):
        if not _can_be(alike.cause, case):
            continue
        measured = tuple(_evidence(alike, case))[:_NUMBERS]
        unseen = SEEN_BY.get(alike.cause) in blind or (_is_seen_by_numbers(alike.cause) and not measured)
        share = None if unseen else case.share(alike.cause)
        yield LookAlike(alike.cause, share, share is not None and share < thresholds.REPORTED_SHARE, measured)


def _is_seen_by_numbers(cause: str) -> bool:
    """Whether only numbers show a cause: what keeps a GPU from computing faster is in no state of a thread."""
    return CAUSES[cause].bottleneck == "gpu" and not CAUSES[cause].healthy


def _evidence(alike: Alike, case: Case) -> Iterator[Evidence]:
    """The numbers of which there is one, of the job or of its only trainer."""
    for name in alike.numbers:
        found = case.evidence(name)
        if len(found) == 1:
            yield from found


def _can_be(cause: str, case: Case) -> bool:
    """Whether a job can have a cause at all: one without a GPU, or of a single rank, has none of theirs."""
    if CAUSES[cause].bottleneck == "communication":
        return len(case.trainers) > 1
    return case.uses_gpu or CAUSES[cause].bottleneck != "gpu"
