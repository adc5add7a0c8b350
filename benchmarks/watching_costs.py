"""A job's pace and a watcher's own use in the windows of ``attach_cost.py``, and the table of docs/overhead.md."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

PACE_TARGET = 0.98


@dataclass
class Window:
    """One command beside a job.

    Attributes:
        pace: the job's steps per second meanwhile.
        cpu_s: CPU seconds of the command and its children.
        memory_bytes: their resident memory at its highest; pages that they share count for each.
        watching_pace: the job's steps per second while perfdoctor looked at it, None for other commands.
        watching_cores: cores that perfdoctor says it used while it watched, None for other commands.
        report_s: from the end of the recording to the report, None for other commands.
    """

    pace: float
    wall_s: float
    cpu_s: float
    memory_bytes: int
    watching_pace: float | None = None
    watching_cores: float | None = None
    report_s: float | None = None


@dataclass
class Cost:
    """All windows of one example."""

    name: str
    alone: list[float] = field(default_factory=list)
    attach: list[Window] = field(default_factory=list)
    py_spy: list[Window] = field(default_factory=list)
    note: str = ""

    def ratios(self, paces: Iterable[float | None]) -> list[float]:
        """Pace watched over pace alone, the latter as the mean of the windows just before and after."""
        pairs = zip(self.alone, self.alone[1:], strict=False)
        return [(pace or 0.0) / statistics.mean(pair) for pace, pair in zip(paces, pairs, strict=False)]


@dataclass(frozen=True)
class Row:
    """Medians of one example: pace ratios, cores over the command's life and while watching, memory, seconds waited."""

    name: str
    watching_ratio: float
    attach_ratio: float
    py_spy_ratio: float
    attach_cores: float
    watching_cores: float
    py_spy_cores: float
    attach_mib: float
    py_spy_mib: float
    report_s: float

    @classmethod
    def of(cls, cost: Cost) -> "Row":
        median = statistics.median
        spied = Cost(cost.name, alone=cost.alone[len(cost.attach) :])
        return cls(
            cost.name,
            median(cost.ratios(w.watching_pace for w in cost.attach)),
            median(cost.ratios(w.pace for w in cost.attach)),
            median(spied.ratios(w.pace for w in cost.py_spy)),
            median(w.cpu_s / w.wall_s for w in cost.attach),
            median(w.watching_cores or float("nan") for w in cost.attach),
            median(w.cpu_s / w.wall_s for w in cost.py_spy),
            median(w.memory_bytes for w in cost.attach) / 2**20,
            median(w.memory_bytes for w in cost.py_spy) / 2**20,
            median(w.report_s or float("nan") for w in cost.attach),
        )

    def numbers(self) -> list[str]:
        ratios = [f"{value:.3f}" for value in (self.watching_ratio, self.attach_ratio, self.py_spy_ratio)]
        cores = [f"{value:.3f}" for value in (self.watching_cores, self.attach_cores, self.py_spy_cores)]
        return [*ratios, *cores, f"{self.attach_mib:.0f}", f"{self.py_spy_mib:.0f}", f"{self.report_s:.1f}"]


COLUMNS = (
    "pace, watching",
    "pace, attach in all",
    "pace, py-spy",
    "cores, watching",
    "cores, attach in all",
    "cores, py-spy",
    "MiB, attach",
    "MiB, py-spy",
    "report after, s",
)

SECTION = """\
Windows of {seconds:g} s alternate, {rounds} of each kind; medians.

| example | {columns} |
{rule}
{table}

Median pace: {attach:.3f} with attach in all (target {target}), {watching:.3f} while it watches, {py_spy:.3f} with
py-spy. The report came {report:.1f} s after the recording was whole as a median, {latest:.1f} s at most (target 3).

Measured on {machine}.
"""


def document(rows: list[Row], rounds: int, seconds: float, machine: str) -> str:
    """The table of docs/overhead.md."""
    watching, attach, py_spy = medians(rows)
    return SECTION.format(
        seconds=seconds,
        rounds=rounds,
        columns=" | ".join(COLUMNS),
        rule="|---" * (1 + len(COLUMNS)) + "|",
        table="\n".join(f"| {row.name} | " + " | ".join(row.numbers()) + " |" for row in rows),
        attach=attach,
        watching=watching,
        target=PACE_TARGET,
        py_spy=py_spy,
        report=statistics.median(row.report_s for row in rows),
        latest=max(row.report_s for row in rows),
        machine=machine,
    )


def medians(rows: list[Row]) -> tuple[float, float, float]:
    """Median pace while perfdoctor watches, with attach in all, and with py-spy."""
    ratios = [(row.watching_ratio, row.attach_ratio, row.py_spy_ratio) for row in rows]
    watching, attach, py_spy = (statistics.median(column) for column in zip(*ratios, strict=True))
    return watching, attach, py_spy
