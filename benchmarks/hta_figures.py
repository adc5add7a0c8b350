"""What HolisticTraceAnalysis says about traces, and what that takes. Runs in a Python that has it (``pip install
HolisticTraceAnalysis 'pandas<3'``), and imports nothing of perfdoctor.

    python hta_figures.py TRACE [--all-steps] prints JSON: {"figures": ... in nanoseconds, "seconds", "peak_bytes"},
    or {"error": ...}
"""

import argparse
import json
import logging
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from hta.trace_analysis import TraceAnalysis
from hta.utils.utils import get_kernel_type, merge_kernel_intervals

NS = 1000


def analyse(path: Path, *, all_steps: bool) -> Any:
    """HTA's own breakdown and overlap, as its users call them."""
    analysis = TraceAnalysis(
        trace_files={0: str(path)}, trace_dir=str(path.parent), include_last_profiler_step=all_steps
    )
    breakdown = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]
    return analysis, breakdown, float(overlap["comp_comm_overlap_pctg"])


def figures(analysis: Any, breakdown: Any, overlap: float) -> dict[str, float]:
    """The five figures in nanoseconds.

    HTA publishes no communication time; it is made here with HTA's own functions from HTA's own events.
    """
    table = analysis.t.traces[0]
    table = table[table["stream"].ne(-1)].copy()
    names = analysis.t.symbol_table.get_sym_table()
    kinds = table["name"].map(lambda name: get_kernel_type(names[name]))
    collectives = merge_kernel_intervals(table[kinds.eq("COMMUNICATION")].copy())
    communication = float((collectives["end"] - collectives["ts"]).sum()) if len(collectives) else 0.0
    window, idle = float(breakdown["kernel_time(us)"]), float(breakdown["idle_time(us)"])
    return {
        "window": window * NS,
        "busy": (window - idle) * NS,
        "compute": float(breakdown["compute_time(us)"]) * NS,
        "communication": communication * NS,
        "overlap": 0.0 if pd.isna(overlap) else communication * NS * overlap / 100,
        "idle": idle * NS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--all-steps", action="store_true", help="keep the last ProfilerStep, which HTA drops")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    started = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        found = analyse(arguments.trace, all_steps=arguments.all_steps)
        seconds = time.perf_counter() - started
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        answer = {
            "figures": figures(*found),
            "seconds": seconds,
            "peak_bytes": peak * 1024,
            "loaded_bytes": before * 1024,
        }
    except Exception as error:  # noqa: BLE001 - whatever it dies of is the result
        answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:120].rstrip(": ")}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
