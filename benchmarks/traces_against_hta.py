"""Device times of perfdoctor and of HolisticTraceAnalysis (HTA) side by side, and what explains each difference.

    python benchmarks/traces_against_hta.py --hta-python /path/to/python-with-hta TRACE...

Five figures are compared for each trace, over the time from the first to the last event on the device: busy, compute
(kernels other than collectives), communication, their overlap, and idle. Where they differ, HTA's known faults are put
into perfdoctor's events one by one. The smallest set of faults that makes all five figures HTA's is the explanation;
where none does, the difference is *unexplained*, and the script ends with status 1.
"""

import argparse
import gzip
import itertools
import json
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfdoctor.cluster.files import find_traces
from perfdoctor.knowledge.profiler import Work
from perfdoctor.traces.device import classify_work, split_devices
from perfdoctor.traces.events import DEVICE_CATEGORIES
from perfdoctor.traces.intervals import Intervals
from perfdoctor.traces.model import DeviceKind, Trace
from perfdoctor.traces.reader import read_trace
from perfdoctor.traces.steps import TraceWindow

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from documents import fill

FIGURES = ("busy", "compute", "communication", "overlap", "idle")
# Equal: within 1 % of the figure, or within one part in 10,000 of the window where the figure is next to nothing.
RELATIVE, OF_WINDOW = 0.01, 1e-4

FAULTS = {
    "rounding": "HTA cuts each event of a trace with nanoseconds to whole microseconds inside it, so each loses up to "
    "2 µs of busy time.",
    "unlinked": "HTA drops work whose launch is not in the trace (the profiler started after it), and calls the device "
    "idle meanwhile.",
    "lanes": "HTA counts whatever carries a stream as work, also ranges of annotations and events that mark waiting.",
    "names": "HTA knows collectives by names that begin with `nccl` only, and takes no kernel with Memset, Memcpy or "
    "Sync in its name for arithmetic.",
}
_COLLECTIVE = re.compile(r"^nccl.*Kernel")
_MEMORY = re.compile(r"(^Memcpy)|(^Memset)|(^dma)")
_NO_COMPUTE = re.compile(r"(^nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync)")


@dataclass(frozen=True)
class Lane:
    """Events on a device: what the five figures are made from."""

    start: Any
    end: Any
    computing: Any
    communicating: Any

    def kept(self, rows: Any) -> "Lane":
        return Lane(self.start[rows], self.end[rows], self.computing[rows], self.communicating[rows])

    def rounded(self) -> "Lane":
        start = np.ceil(self.start / 1000).astype(np.int64) * 1000
        return replace(self, start=start, end=np.floor(self.end / 1000).astype(np.int64) * 1000)


def measure(lane: Lane) -> dict[str, float]:
    """The five figures and the window, in nanoseconds."""
    busy = Intervals.union(lane.start, lane.end)
    compute = Intervals.union(lane.start[lane.computing], lane.end[lane.computing])
    moving = Intervals.union(lane.start[lane.communicating], lane.end[lane.communicating])
    window = int(lane.end.max() - lane.start.min())
    return {
        "window": window,
        "busy": busy.total,
        "compute": compute.total,
        "communication": moving.total,
        "overlap": (compute & moving).total,
        "idle": window - busy.total,
    }


def own_figures(trace: Trace) -> dict[str, float]:
    """The five figures from the events and the sorting of kernels that perfdoctor's account rests on."""
    work = classify_work(trace)
    collective = work == Work.COMMUNICATION
    kernels = trace.device.kind == DeviceKind.KERNEL
    found = measure(Lane(trace.device.start, trace.device.end, kernels & ~collective, collective))
    window = TraceWindow(int(trace.device.start.min()), int(trace.device.end.max()))
    [time] = split_devices(trace, work, window)
    moving = time.alone[Work.COMMUNICATION].total + time.hidden_communication
    if (time.busy.total, time.idle.total, moving) != (found["busy"], found["idle"], found["communication"]):
        raise AssertionError(f"{trace.source}: the account is not what its events add up to")
    return found


class Flawed:
    """A trace's events as HTA takes them, with some of its faults."""

    def __init__(self, path: Path, trace: Trace) -> None:
        opened = gzip.open if path.name.endswith(".gz") else open
        with opened(path, "rb") as file:
            document = json.load(file)
        events = document if isinstance(document, list) else document["traceEvents"]
        events = [one for one in events if one.get("ph") == "X" and one.get("cat") != "Trace" and "dur" in one]
        work = classify_work(trace)
        known = dict(zip(trace.device.name.tolist(), (work == Work.COMMUNICATION).tolist(), strict=True))
        self._collectives = {trace.names[name] for name, collective in known.items() if collective}
        self._events = [one for one in events if _number(one, "stream") != -1]
        self._called = self._calls([one for one in events if _number(one, "stream") == -1])
        self._whole = all(float(one["ts"]).is_integer() for one in events[:1000])

    def figures(self, faults: frozenset[str]) -> dict[str, float]:
        """The five figures with these faults."""
        events = self._events
        if "lanes" not in faults:
            events = [one for one in events if one.get("cat", "").lower() in DEVICE_CATEGORIES]
        if "unlinked" in faults and self._called is not None:
            events = [one for one in events if _number(one, "correlation") in self._called]
        lane = self._lane(events, hta_names="names" in faults)
        if "rounding" in faults and not self._whole:
            lane = lane.rounded()
        return measure(lane)

    def _calls(self, host: list[dict[str, Any]]) -> set[int] | None:
        """Correlations of what the host did until the last step's end; None for a trace in which HTA drops nothing."""
        steps = [one for one in host if "ProfilerStep" in one["name"]]
        if len({one["name"] for one in steps}) < 2:
            return None
        last = max(one["ts"] + one["dur"] for one in steps)
        return {_number(one, "correlation") for one in host if one["ts"] <= last}

    def _lane(self, events: list[dict[str, Any]], *, hta_names: bool) -> Lane:
        start = np.array([round(one["ts"] * 1000) for one in events], dtype=np.int64)
        end = start + np.array([round(one["dur"] * 1000) for one in events], dtype=np.int64)
        names = [one["name"] for one in events]
        kernels = [one.get("cat", "").lower() not in ("memcpy", "memset", "gpu_memcpy", "gpu_memset") for one in events]
        if hta_names:
            computing = [not _MEMORY.match(name) and not _NO_COMPUTE.match(name) for name in names]
            moving = [_COLLECTIVE.match(name) is not None for name in names]
        else:
            moving = [name in self._collectives for name in names]
            computing = [kernel and not other for kernel, other in zip(kernels, moving, strict=True)]
        return Lane(start, end, np.array(computing, dtype=np.bool_), np.array(moving, dtype=np.bool_))


def _number(event: dict[str, Any], name: str) -> int:
    value = (event.get("args") or {}).get(name, -1)
    return value if isinstance(value, int) and 0 <= value < 2**31 else -1


def equal(one: dict[str, float], other: dict[str, float]) -> bool:
    """Whether all five figures are."""
    return all(alike(one, other, figure) for figure in FIGURES)


def alike(one: dict[str, float], other: dict[str, float], figure: str) -> bool:
    allowed = max(RELATIVE * max(one[figure], other[figure]), OF_WINDOW * one["window"])
    return abs(one[figure] - other[figure]) <= allowed


def explain(path: Path, trace: Trace, theirs: dict[str, float]) -> tuple[str, ...] | None:
    """The smallest set of HTA's faults that makes perfdoctor's events give HTA's figures; None if none does."""
    flawed = Flawed(path, trace)
    for count in range(len(FAULTS) + 1):
        for faults in itertools.combinations(FAULTS, count):
            if equal(flawed.figures(frozenset(faults)), theirs):
                return faults
    return None


def ask_hta(python: str, path: Path) -> dict[str, Any]:
    """HTA's answer, from a process of its own."""
    script = Path(__file__).with_name("hta_figures.py")
    done = subprocess.run(
        [python, str(script), str(path), "--all-steps"], capture_output=True, text=True, timeout=600, check=False
    )
    lines = done.stdout.strip().splitlines()
    answer: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": f"ended with status {done.returncode}"}
    return answer


def compare(python: str, path: Path) -> tuple[str, bool]:
    """A row of the table, and whether it is explained."""
    trace = read_trace(path)
    name = path.name.split(".json")[0] if path.parent.name == "traces" else f"{path.parent.name}/{path.stem[:5]}"
    answer = ask_hta(python, path)
    if not len(trace.device):
        theirs = answer.get("error") or "takes ranges of another device for kernels"
        return f"| {name} | no work of a known GPU | | | | | HTA: {theirs} |", True
    own = own_figures(trace)
    if "error" in answer:
        return f"| {name} | {_cells(own, None)} | HTA: {answer['error']} |", True
    theirs = answer["figures"]
    if equal(own, theirs):
        return f"| {name} | {_cells(own, theirs)} | equal |", True
    faults = explain(path, trace, theirs)
    why = "**unexplained**" if faults is None else ", ".join(faults) or "**perfdoctor reads other events**"
    return f"| {name} | {_cells(own, theirs)} | {why} |", bool(faults)


def _cells(own: dict[str, float], theirs: dict[str, float] | None) -> str:
    def cell(figure: str) -> str:
        mine = f"{100 * own[figure] / own['window']:.2f}"
        if theirs is None:
            return mine
        other = f"{100 * theirs[figure] / theirs['window']:.2f}"
        return mine if alike(own, theirs, figure) and mine == other else f"{mine} / {other}"

    return " | ".join(cell(figure) for figure in FIGURES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, help="traces, or folders of them")
    parser.add_argument("--hta-python", required=True, help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    arguments = parser.parse_args()
    rows, sound = [], True
    for path in find_traces(arguments.traces):
        row, explained = compare(arguments.hta_python, path)
        print(row, flush=True)
        rows.append(row)
        sound &= explained
    head = f"| trace | {' | '.join(FIGURES)} | why they differ |\n|---|{'---|' * (len(FIGURES) + 1)}"
    legend = "\n".join(f"- *{name}*: {text}" for name, text in FAULTS.items())
    if arguments.write:
        fill("performance.md", "agreement", "\n".join([head, *rows, "", legend]))
    print(legend)
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    main()
