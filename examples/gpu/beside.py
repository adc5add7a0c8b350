"""Compares what perfdoctor's probe read of a GPU with what nvidia-smi and torch said at the same time."""

import contextlib
import json
import shutil
import statistics
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SMI, RECORDING = "nvidia-smi.csv", "attach.perfdoctor"
SMI_SAID, TORCH_SAID = "nvidia-smi", "torch"
_PERIOD_S = 0.5
GIB = 1 << 30


class Pair(NamedTuple):
    """One quantity, read in two ways.

    Attributes:
        theirs: its name at nvidia-smi, or in ``accelerator.counters``.
        worth: what one of their units is worth in ours.
        relative: how far apart both may be, as a fraction; what is not read at the same instants differs.
        absolute: the same in our unit; the larger counts.
    """

    reading: str
    theirs: str
    worth: float
    relative: float
    absolute: float


# A few percent for what changes little, a tenth for what changes from moment to moment.
_SMI_PAIRS = (
    Pair("busy_fraction", "utilization.gpu", 0.01, 0.10, 0.05),
    Pair("memory_busy_fraction", "utilization.memory", 0.01, 0.10, 0.05),
    Pair("memory_used_bytes", "memory.used", 1 << 20, 0.02, GIB),  # drivers differ in what they reserve
    Pair("memory_total_bytes", "memory.total", 1 << 20, 0.02, 0),
    Pair("power_watts", "power.draw", 1, 0.10, 20),
    Pair("power_limit_watts", "enforced.power.limit", 1, 0.01, 1),
    Pair("sm_clock_hertz", "clocks.sm", 1e6, 0.05, 0),
    Pair("sm_clock_max_hertz", "clocks.max.sm", 1e6, 0.01, 0),
    Pair("memory_clock_hertz", "clocks.mem", 1e6, 0.05, 0),
    Pair("temperature_celsius", "temperature.gpu", 1, 0.0, 4),
    Pair("pcie_generation", "pcie.link.gen.current", 1, 0.0, 0.5),
    Pair("pcie_width", "pcie.link.width.current", 1, 0.0, 0.5),
)
# One look of torch's, shortly after ours.
_TORCH_PAIRS = (
    Pair("busy_fraction", "utilization", 0.01, 0.0, 0.3),
    Pair("memory_used_bytes", "used_bytes", 1, 0.05, GIB),
    Pair("job_memory_bytes", "reserved_bytes.all.current", 1, 0.05, GIB),  # torch leaves out its context
    Pair("power_watts", "power_draw", 1e-3, 0.3, 20),
    Pair("sm_clock_hertz", "clock_rate", 1e6, 0.1, 0),
    Pair("temperature_celsius", "temperature", 1, 0.0, 5),
)


@contextlib.contextmanager
def nvidia_smi(file: Path) -> Iterator[None]:
    """Asks nvidia-smi twice a second meanwhile, into a file; nothing where there is none.

    It is started for each look: one that goes on by itself loses, when it is ended, what it has not yet written.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        yield
        return
    asked = ",".join(["index", *(pair.theirs for pair in _SMI_PAIRS)])
    command = [program, f"--query-gpu={asked}", "--format=csv,noheader,nounits"]
    through = threading.Event()

    def look() -> None:
        with file.open("w") as out:
            while not through.wait(_PERIOD_S):
                subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=False)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        through.set()
        looking.join()


def others(folder: Path, gpu: str | None) -> dict[str, dict[str, float]]:
    """What nvidia-smi in the mean and torch say of a GPU such as ``gpu:0``, in their names and units.

    Args:
        folder: what was gathered of one job.
        gpu: which; None for none.
    """
    return {SMI_SAID: {} if gpu is None else _means(smi_samples(folder / SMI, gpu)), TORCH_SAID: _torch(folder)}


def compare(ours: dict[str, float], theirs: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """What was read in two ways while attach looked: one row for each pair, or the reason why there is none.

    Args:
        ours: the second of ``means_of``.
        theirs: as ``others`` has it.
    """
    if not ours:
        return [{"reason": "perfdoctor's probe read no GPU here"}]
    pairs = [(SMI_SAID, pair) for pair in _SMI_PAIRS] + [(TORCH_SAID, pair) for pair in _TORCH_PAIRS]
    return [_row(source, pair, ours, theirs.get(source, {})) for source, pair in pairs]


def _row(source: str, pair: Pair, ours: dict[str, float], theirs: dict[str, float]) -> dict[str, Any]:
    row: dict[str, Any] = {"reading": pair.reading, "source": source, "theirs": pair.theirs}
    mine, other = ours.get(pair.reading), theirs.get(pair.theirs)
    if mine is None or other is None:
        who = "perfdoctor" if mine is None else source
        return {**row, "reason": f"{who} did not say"}
    other *= pair.worth
    apart = abs(mine - other)
    agrees = apart <= max(pair.relative * abs(other), pair.absolute)
    return {**row, "perfdoctor": mine, "other": other, "agrees": agrees}


def means_of(recording: Path) -> tuple[str | None, dict[str, float]]:
    """The job's first GPU and the mean of each of its readings; None if there is no recording, or no GPU in it."""
    from perfdoctor.metrics.gpu import job_gpus
    from perfdoctor.recording.reader import Recording
    from perfdoctor.timeline.readings import Readings

    if not recording.exists():
        return None, {}
    opened = Recording.open(recording)
    readings = Readings(opened)
    opened.close()
    gpus = job_gpus(readings)
    if not gpus:
        return None, {}
    names = [name for subject, name in opened.series if subject == gpus[0]]
    return gpus[0], {name: mean for name in names if (mean := readings.mean(gpus[0], name)) is not None}


def smi_samples(file: Path, gpu: str) -> list[dict[str, float]]:
    """What nvidia-smi said of a GPU such as ``gpu:0``, look by look; what it did not know is left out."""
    found = []
    for line in file.read_text(errors="replace").splitlines() if file.exists() else []:
        index, *cells = (cell.strip() for cell in line.split(","))
        if f"gpu:{index}" == gpu and len(cells) == len(_SMI_PAIRS):
            numbers = {pair.theirs: _number(cell) for pair, cell in zip(_SMI_PAIRS, cells, strict=True)}
            found.append({name: number for name, number in numbers.items() if number is not None})
    return found


def _means(samples: list[dict[str, float]]) -> dict[str, float]:
    names = {name for sample in samples for name in sample}
    return {name: statistics.mean(sample[name] for sample in samples if name in sample) for name in names}


def _torch(folder: Path) -> dict[str, float]:
    file = folder / "torch0.json"
    said = json.loads(file.read_text()) if file.exists() else {}
    return {name: value for name, value in said.items() if isinstance(value, float)}


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:  # "[N/A]", or a sentence
        return None
