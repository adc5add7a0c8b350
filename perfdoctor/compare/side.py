"""One side of a comparison: what a JSON report says of a run, whichever perfdoctor wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.compare.estimates import Ratio
from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import say
from perfdoctor.results.blocks import Block, in_batches
from perfdoctor.results.comparison import ComparedRun

SCHEMA = 1  # of the JSON reports that are understood
_HINT = say("moves.report_again")


@dataclass(frozen=True, slots=True)
class Side:
    """What is known of one run.

    Attributes:
        run: what reports say of it.
        version: of the perfdoctor that made the report.
        job: what was watched.
        shares: cause to fraction of wall time.
        finding: the first, as the report has it; {} if there is none.
        pace: seconds over steps; None where it has no steps.
        batches: stretches of the run that hardly depend on each other; those with steps, and those with causes.
    """

    run: ComparedRun
    version: str
    job: Mapping[str, Any]
    shares: Mapping[str, float]
    finding: Mapping[str, Any]
    pace: Ratio | None
    batches: tuple[Block, ...]

    @property
    def settings(self) -> Mapping[str, Any]:
        """How the job is set up; {} where nothing is known of that."""
        return self.job.get("settings") or {}

    @property
    def neighbours(self) -> float | None:
        """Cores that processes outside the job kept busy."""
        return self.job.get("neighbour_cores")

    @property
    def aligned(self) -> bool:
        """Whether the same batches tell of steps and of causes."""
        return any(batch.steps is not None and batch.causes for batch in self.batches)

    def share(self, *causes: str) -> Ratio:
        """The seconds of some causes over all seconds."""
        held = [batch.causes for batch in self.batches if batch.causes]
        if not held:
            return Ratio((_of(self.shares, causes),), (1.0,))
        return Ratio([_of(spent, causes) for spent in held], [sum(spent.values()) for spent in held])

    def per_step(self, cause: str) -> Ratio:
        """The seconds of a cause over steps, where the same batches tell of both."""
        held = [batch for batch in self.batches if batch.steps is not None and batch.causes]
        return Ratio([batch.causes.get(cause, 0.0) for batch in held], [batch.steps or 0.0 for batch in held])


def _of(amounts: Mapping[str, float], causes: Iterable[str]) -> float:
    return sum(amounts.get(cause, 0.0) for cause in causes)


def read_side(source: str, kind: str, document: Mapping[str, Any]) -> Side:
    """Reads what a JSON report says.

    Args:
        source: where it comes from, as the user named it.
        kind: ``recording``, ``report`` or ``trace``.
        document: the report.

    Raises:
        PerfDoctorError: it is of another schema or damaged, or does not report a training.
    """
    if document.get("schema") != SCHEMA:
        raise PerfDoctorError(
            f"{source} is a report of schema {document.get('schema')}, and this perfdoctor reads schema {SCHEMA}.",
            hint="Compare with the perfdoctor version that wrote it, or make both reports anew from their recordings.",
        )
    try:
        side = _side(source, kind, document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PerfDoctorError(f"{source} is a damaged report: {error!r}.", hint=_HINT) from None
    # All of a stuck job's time goes wherever it stopped: it has neither shares nor a pace.
    if document.get("stuck") is not None or (not side.shares and side.pace is None):
        raise PerfDoctorError(
            f"{source} does not report a training: {side.run.summary}", hint="Record the job while it trains."
        )
    return side


def _side(source: str, kind: str, document: Mapping[str, Any]) -> Side:
    verdict, job, steps = document["verdict"], document["job"], document["steps"]
    shares = {str(line["cause"]): float(line["share"]) for line in document["breakdown"]}
    known = {cause: share for cause, share in shares.items() if cause != UNATTRIBUTED}
    blocks = [_block(block) for block in document.get("blocks", ())]
    timed = [block for block in blocks if block.steps is not None]
    pace = _pace(timed, steps)
    run = ComparedRun(
        source=source,
        kind=kind,
        summary=str(verdict["summary"]),
        cause=verdict["cause"],
        level=str(verdict["level"]),
        watched_s=float(job.get("watched_seconds") or sum(block.seconds for block in blocks)),
        steps=sum(block.steps or 0.0 for block in timed) if timed else steps.get("count"),
        step_is="" if pace is None else _step_is(job, steps),
    )
    others = [block for block in blocks if block.steps is None]
    batches = (*_in_batches(timed), *_in_batches(others))
    finding: Mapping[str, Any] = next(iter(document["findings"]), {})
    return Side(run, str(document["perfdoctor"]), job, shares if known else {}, finding, pace, batches)


def _step_is(job: Mapping[str, Any], steps: Mapping[str, Any]) -> str:
    """How the steps of a report are known of which there is a pace."""
    if "traces" in job or "count" not in steps:
        return "traced"
    return str(steps.get("unit", "marked"))


def _block(block: Mapping[str, Any]) -> Block:
    steps = block["steps"]
    causes = {str(cause): float(seconds) for cause, seconds in block["causes"].items()}
    return Block(float(block["seconds"]), None if steps is None else float(steps), causes)


def _in_batches(blocks: Sequence[Block]) -> list[Block]:
    """Blocks long enough to hardly depend on each other; of those with steps each is as long as one at least."""
    steps = [block.steps for block in blocks if block.steps is not None]
    return in_batches(blocks, min(int(thresholds.BATCHES), int(sum(steps)) if steps else len(blocks)))


def _pace(timed: Sequence[Block], steps: Mapping[str, Any]) -> Ratio | None:
    """Seconds per step; by the report's own mean where it has no blocks, as those of older versions."""
    if timed:
        batches = _in_batches(timed)
        return Ratio([one.seconds for one in batches], [one.steps or 0.0 for one in batches]) if batches else None
    mean_s = steps.get("mean_s", steps.get("median_s"))
    return Ratio((float(mean_s),), (1.0,)) if mean_s else None
