"""Speed and memory of ``perfdoctor analyze`` beside HolisticTraceAnalysis (HTA) and a bare typed decode.

    python benchmarks/traces_speed.py --hta-python /path/to/python-with-hta TRACE...

Each trace is analysed by each of the three in a process of its own, in turns, and the fastest of the rounds counts.
Libraries are loaded before the clock starts. perfdoctor: from the packed file to the diagnosis. HTA: from the packed
file to its temporal breakdown and overlap. Bare: the text is in memory already, and msgspec decodes it into typed
events, all at once, each with all fields that perfdoctor reads of any. Memory is the highest resident size: whole, and
perfdoctor's own. Its own is what it takes beyond loaded libraries, less the pages of their files that are read when
their code first runs. What no trace can do without is told by one of two events.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from perfdoctor.analysis.from_traces import diagnose_traces
from perfdoctor.cluster.files import find_traces
from perfdoctor.traces.decode import TraceDocument, TraceFile
from perfdoctor.traces.events import TraceEvent
from perfdoctor.traces.reader import read_trace

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from documents import fill

MB = 1e6
# Fixed costs rule below this size.
SMALL_MB = 9.0


def memory() -> dict[str, int]:
    """What the process takes, in bytes: now, at most so far, and how much of what it takes now is pages of files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM", "RssFile")}


def run_perfdoctor(path: Path) -> dict[str, Any]:
    loaded = memory()
    started = time.perf_counter()
    diagnosis = diagnose_traces([read_trace(path)])
    seconds = time.perf_counter() - started
    done = memory()
    mapped = done["RssFile"] - loaded["RssFile"]
    return {
        "seconds": seconds,
        "peak": done["VmHWM"],
        "mapped": mapped,
        "own": done["VmHWM"] - loaded["VmRSS"] - mapped,
        "cause": diagnosis.verdict.cause,
    }


def run_bare(path: Path) -> dict[str, Any]:
    text = b"".join(TraceFile(path))
    kind: Any = list[TraceEvent] if text.lstrip()[:1] == b"[" else TraceDocument
    decoder = msgspec.json.Decoder(kind)
    started = time.perf_counter()
    decoded = decoder.decode(text)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "size": len(text), "events": len(getattr(decoded, "events", decoded))}


def apart(mode: str, path: Path) -> dict[str, Any]:
    return _answer([sys.executable, __file__, "--only", mode, str(path)])


def run_hta(python: str, path: Path) -> dict[str, Any]:
    return _answer([python, str(Path(__file__).with_name("hta_figures.py")), str(path)])


def _answer(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if not done.stdout.strip():
        raise RuntimeError(f"{command}: {done.stderr[-500:]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def measure(python: str, path: Path, rounds: int) -> dict[str, Any]:
    """The fastest of some rounds, and the largest memory."""
    ours, bare, hta = [], [], []
    for _ in range(rounds):
        ours.append(apart("perfdoctor", path))
        bare.append(apart("bare", path))
        hta.append(run_hta(python, path))
    failed = next((one["error"] for one in hta if "error" in one), None)
    return {
        "name": path.name.split(".json")[0],
        "size": bare[0]["size"],
        "ours": min(one["seconds"] for one in ours),
        "bare": min(one["seconds"] for one in bare),
        "hta": None if failed else min(one["seconds"] for one in hta),
        "peak": max(one["peak"] for one in ours),
        "own": max(one["own"] for one in ours),
        "hta_peak": None if failed else max(one["peak_bytes"] for one in hta),
    }


HEAD = (
    "| trace | JSON | perfdoctor | MB/s | times a bare decode | times HTA's speed | peak memory | of the JSON "
    "| its own, of the JSON | of HTA's peak |\n|---|" + "---:|" * 9
)


def row(one: dict[str, Any]) -> str:
    size, ours, hta = one["size"], one["ours"], one["hta"]
    faster = f"{hta / ours:.1f}" if hta else "HTA fails"
    of_hta = f"{one['peak'] / one['hta_peak']:.2f}" if hta else ""
    return (
        f"| {one['name']} | {size / MB:.1f} MB | {1000 * ours:.0f} ms | {size / ours / MB:.0f} "
        f"| {ours / one['bare']:.1f} | {faster} | {one['peak'] / MB:.0f} MB | {one['peak'] / size:.2f} "
        f"| {one['own'] / size:.2f} | {of_hta} |"
    )


def together(rows: list[dict[str, Any]]) -> str:
    """The ratios over all traces, and over those where fixed costs do not rule."""
    lines = []
    for words, some in (
        ("all traces", rows),
        (f"traces of at least {SMALL_MB:g} MB", [one for one in rows if one["size"] >= SMALL_MB * MB]),
    ):
        both = [one for one in some if one["hta"]]
        if not both:
            continue
        ours = sum(one["ours"] for one in some)
        lines.append(
            f"- {words} ({len(some)}): {sum(one['size'] for one in some) / ours / MB:.0f} MB/s, "
            f"{ours / sum(one['bare'] for one in some):.1f} times a bare decode (worst {_worst(some):.1f}), "
            f"{sum(one['hta'] for one in both) / sum(one['ours'] for one in both):.1f} times HTA's speed (worst "
            f"{min(one['hta'] / one['ours'] for one in both):.1f}), at most "
            f"{max(one['peak'] / one['hta_peak'] for one in both):.2f} of HTA's peak memory, at most "
            f"{max(one['own'] / one['size'] for one in some):.2f} times the JSON of its own."
        )
    return "\n".join(lines)


def fixed_costs(rounds: int) -> str:
    """What a trace of two events takes."""
    span = {"ph": "X", "pid": 1, "tid": 1, "ts": 1.0, "dur": 5000.0}
    kernel = {**span, "cat": "kernel", "name": "gemm", "args": {"device": 0, "stream": 7, "correlation": 1}}
    document = {"traceEvents": [{**span, "cat": "cpu_op", "name": "aten::mm"}, kernel]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "two-events.json.gz"
        path.write_bytes(gzip.compress(json.dumps(document).encode()))
        ours = [apart("perfdoctor", path) for _ in range(rounds)]
    return (
        f"- a trace of two events: {1000 * min(one['seconds'] for one in ours):.1f} ms, "
        f"{max(one['mapped'] for one in ours) / MB:.1f} MB of libraries' files and "
        f"{max(one['own'] for one in ours) / MB:.1f} MB of its own."
    )


def _worst(rows: list[dict[str, Any]]) -> float:
    return float(max(one["ours"] / one["bare"] for one in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--hta-python", default=sys.executable, help="a Python that has HolisticTraceAnalysis")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("perfdoctor", "bare"), help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    arguments = parser.parse_args()
    if arguments.only:
        run = run_perfdoctor if arguments.only == "perfdoctor" else run_bare
        print(json.dumps(run(arguments.traces[0])))
        return
    rows = []
    print(HEAD)
    for path in find_traces(arguments.traces):
        rows.append(measure(arguments.hta_python, path, arguments.rounds))
        print(row(rows[-1]), flush=True)
    summary = "\n".join((together(rows), fixed_costs(max(arguments.rounds, 3))))
    print(summary)
    if arguments.write:
        fill("performance.md", "speed", "\n".join([HEAD, *map(row, rows), "", summary]))


if __name__ == "__main__":
    main()
