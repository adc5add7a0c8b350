"""For tests of advice: the finding that rules make of a job, and what it advises."""

from perfdoctor.diagnosis import Evidence, Finding
from perfdoctor.metrics.neighbours import BusyHelper, Neighbour
from perfdoctor.metrics.own_detours import CostlyDetour
from perfdoctor.reports.wording import worded_finding, worded_fixes
from perfdoctor.rules import find
from perfdoctor.rules.case import Case, Trainer


def finding(
    cause: str,
    *,
    numbers: dict[str, float] | None = None,
    trainer: dict[str, float] | None = None,
    settings: dict[str, str | float] | None = None,
    workers: int = 0,
    ranks: int = 1,
    path: str = "",
    target: str = "",
    helpers: int = 0,
    share: float = 0.5,
    beside: dict[str, float] | None = None,
    lines: tuple[str, ...] = (),
    below: dict[str, float] | None = None,
    calls: dict[str, float] | None = None,
    neighbours: tuple[Neighbour, ...] = (),
    busy_helper: BusyHelper | None = None,
    afterwards: tuple[tuple[str, float], ...] = (),
    outside: tuple[tuple[str, float], ...] = (),
    exchanged: tuple[tuple[str, float], ...] = (),
    detours: tuple[CostlyDetour, ...] = (),
    whole: tuple[tuple[str, float], ...] = (),
    late: float = 0.0,
    versions: dict[str, str] | None = None,
    **phases: float,
) -> Finding:
    units = {"neighbour_cores": "cores", "bytes_per_read": "bytes", "major_faults": "/s"}
    measured = {name: Evidence(name, value, units.get(name, ""), "test") for name, value in (numbers or {}).items()}
    own = {name: Evidence(name, value, "", "test") for name, value in (trainer or {}).items()}
    trainers = tuple(
        Trainer(rank, 100 + rank, {}, phases, {0: late if rank else 0.0}, (), workers, helpers, own)
        for rank in range(ranks)
    )
    target = f"file:{path}" if path else target
    paths = {cause: ((target, 1.0),)} if target else {}
    places = {cause: tuple((line, 1 / len(lines)) for line in lines)}
    others = {cause: share, **(beside or {})}
    case = Case(
        {"cpu.model_compute": 1 - sum(others.values()), **others}, trainers, {}, measured, settings or {},
        paths=paths, lines=places, python_lines=places, below={cause: below or {}},
        library_calls={cause: tuple((calls or {}).items())},
        neighbours=neighbours, done_afterwards=afterwards, outside_torch=outside, exchanged_besides=exchanged,
        detours=detours, whole_tensors=whole, versions=versions or {}, busy_helper=busy_helper,
    )  # fmt: skip
    found, broken = find(case)
    assert not broken
    return worded_finding(next(found for found in found if found.cause == cause))


def titles(found: Finding) -> list[str]:
    return [fix.title for fix in worded_fixes(found)]


def changes(found: Finding) -> str:
    return "\n".join(fix.change for fix in worded_fixes(found))
