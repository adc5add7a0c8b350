"""What one rank does alone, for which the others wait."""

from dataclasses import replace

from perfdoctor.causes import PYTHON_OVERHEAD
from perfdoctor.diagnosis import Evidence, Finding, advise
from perfdoctor.messages import say
from perfdoctor.rules.case import Case
from perfdoctor.rules.gains import with_gain
from perfdoctor.rules.rule import by_gain


def with_done_alone(found: Finding, case: Case) -> Finding:
    """The same finding with that, where code of the job's own is its cause."""
    alone = case.done_alone
    if alone is None or found.cause != PYTHON_OVERHEAD:
        return found
    shown = tuple(
        Evidence(say("finding.done_alone", rank=alone.rank), say("finding.part", what=line, part=part), "", "stacks")
        for line, part in alone.lines
    )
    advice = advise(
        "interpreter.done_alone",
        rank=alone.rank,
        lines=tuple(line for line, _ in alone.lines),
        share=alone.share,
        waited=alone.waited,
    )
    fixes = by_gain((with_gain(advice, case, found.cause), *found.fixes))
    return replace(found, evidence=(*found.evidence, *shown), fixes=fixes)
