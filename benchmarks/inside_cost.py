"""What ``with diagnose():`` costs a training step, beside TraceML and an always-on torch.profiler, in microseconds.

    python benchmarks/inside_cost.py [--runs 5] [--steps 4000] [--write]

Two loops: empty steps (the ``with`` alone), and steps of a small real model with a loader, where every kind of mark is
made. Each run is a process of its own, and takes turns with and without. Printed is the median over the turns of
all runs of the difference of the turns' lower quartiles (whoever else runs on the machine only adds to a step), with
its standard error: the distance of the quartiles over the root of the number of turns, as it is for a median of normal
values. The sidecar works meanwhile, as it does for users. Once it has detached there is nothing to put in or take out,
and the turns are single steps.

TraceML is run as its own documentation says: ``traceml run SCRIPT``, ``init(mode="auto")``, ``trace_step(model)``.
Without its ``with`` a step still goes through what it has patched, which does not count here. torch.profiler records
CPU activity without a schedule; starting and stopping it does not count either.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from documents import fill

KINDS = ("empty", "model")
# How many steps of a turn count, after those that fill the caches anew, Python's own among them.
TURN, SETTLE = 80, 60
ALONE, DETACHED = "diagnose()", "diagnose(), detached"
TRACEML, PROFILER = "TraceML", "torch.profiler"
NO_TRACEML = "TraceML is not installed here, and is left out: `pip install traceml-ai` brings it."


def empty_steps():
    """Steps that do nothing, and some model."""
    import torch

    return lambda: None, torch.nn.Linear(2, 2)


def model_steps():
    """Steps of a small classifier, and its model: a batch from a loader, forward, loss, backward, optimizer."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.rand(100_000, 64), torch.zeros(100_000, dtype=torch.long)), 32)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    model, criterion = torch.nn.Sequential(*layers), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(loader)

    def step():
        nonlocal batches
        try:
            images, targets = next(batches)
        except StopIteration:
            batches = iter(loader)
            images, targets = next(batches)
        loss = criterion(model(images), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, model


def timed(step, count):
    """The lower quartile of ``count`` steps in microseconds, after some that do not count."""
    now = time.perf_counter
    found = []
    for _ in range(SETTLE):
        step()
    for _ in range(count):
        begun = now()
        step()
        found.append(now() - begun)
    return statistics.quantiles(found, n=4)[0] * 1e6


def added(bare, watched, steps, *, before=lambda: None, after=lambda: None):
    """Microseconds that a step takes longer while watched, and those of a bare step, for each turn.

    Args:
        bare: a step.
        watched: the same while watched.
        steps: how many of either.
        before: called before each turn of watched steps.
        after: called after each.
    """

    def unwatched():
        bare()  # as deep in calls as the step that is watched

    differences, alone = [], []
    for turn in range(max(steps // TURN, 1)):
        took = {}
        # Now one, now the other first, so that a machine that gets slower does not count.
        for which in ("bare", "watched") if turn % 2 else ("watched", "bare"):
            if which == "bare":
                took[which] = timed(unwatched, TURN)
            else:
                before()
                took[which] = timed(watched, TURN)
                after()
        differences.append(took["watched"] - took["bare"])
        alone.append(took["bare"])
    return differences, alone


def alternating(bare, watched, steps):
    """The same as ``added`` for steps that need no preparation: one watched, one bare, and so on."""

    def unwatched():
        bare()

    now = time.perf_counter
    differences, alone = [], []
    for number in range(steps):
        took = {}
        for step in (unwatched, watched) if number % 2 else (watched, unwatched):
            begun = now()
            step()
            took[step] = (now() - begun) * 1e6
        differences.append(took[watched] - took[unwatched])
        alone.append(took[unwatched])
    return differences, alone


def measure_diagnose(bare, _, steps):
    """While perfdoctor watches, and after it has detached."""
    from perfdoctor import api as inside
    from perfdoctor import diagnose

    def watched():
        with diagnose(steps=1000 * steps, warmup=10, report=None):
            bare()

    until = time.monotonic() + 30
    while time.monotonic() < until and (inside._session is None or inside._session._observed_from is None):
        timed(watched, 20)
    session = inside._session
    patches = session._patches
    patches.remove()
    found = {ALONE: added(bare, watched, steps, before=patches.install, after=patches.remove)}
    session.finish()
    session.sidecar.wait(60)
    return {**found, DETACHED: alternating(bare, watched, steps)}


def measure_traceml(bare, model, steps):
    """In a process that ``traceml run`` has started."""
    import traceml_ai

    traceml_ai.init(mode="auto")

    def watched():
        with traceml_ai.trace_step(model):
            bare()

    return {TRACEML: added(bare, watched, steps)}


def measure_profiler(bare, _, steps):
    """torch.profiler, started anew for each turn: what it has recorded grows without end."""
    from torch.profiler import ProfilerActivity, profile

    running = []

    def watched():
        bare()

    def before():
        running.append(profile(activities=[ProfilerActivity.CPU]))
        running[0].start()

    return {PROFILER: added(bare, watched, steps, before=before, after=lambda: running.pop().stop())}


MEASURES = {ALONE: measure_diagnose, TRACEML: measure_traceml, PROFILER: measure_profiler}


def run(tool, kind, steps):
    """One run in a process of its own.

    Returns:
        By tool, what a step takes longer, and a bare one's time, in microseconds for each turn.
    """
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder, "found.json")
        arguments = ["--one", tool, kind, str(into), "--steps", str(steps)]
        command = [sys.executable, __file__, *arguments]
        if tool == TRACEML:
            traceml = str(Path(sys.executable).with_name("traceml"))
            command = [traceml, "run", "--logs-dir", folder, __file__, "--args", *arguments]
        here = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=here)
        if not into.exists():
            raise SystemExit(f"{' '.join(command)} found nothing:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return json.loads(into.read_text())


def collect(runs, steps, tools):
    """What a step takes longer, the error of that, and a bare one's time in microseconds, by kind and tool."""
    found = {}
    for kind in KINDS:
        for tool in tools:
            results = [run(tool, kind, steps) for _ in range(runs)]
            for name in results[0]:
                differences, alone = ([value for one in results for value in one[name][which]] for which in (0, 1))
                low, middle, high = statistics.quantiles(differences, n=4)
                found[kind, name] = middle, (high - low) / len(differences) ** 0.5, statistics.median(alone)
    return found


def table(found, runs, steps):
    """The figures as Markdown."""
    lines = [
        "| | empty step, µs longer | model's step, µs longer | of a bare one | times `diagnose()` |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(name for _, name in found):
        (empty, empty_error, _), (model, error, bare) = (found[kind, name] for kind in KINDS)
        times = "" if name == DETACHED else f"{model / found['model', ALONE][0]:.1f}"
        longer = f"{empty:.1f} ± {empty_error:.1f} | {model:.1f} ± {error:.1f}"
        lines.append(f"| {_label(name)} | {longer} | {model / bare:+.1%} | {times} |")
    bare = statistics.median(values[-1] for (kind, _), values in found.items() if kind == "model")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "perfdoctor"))
    lines += [
        "",
        f"A bare step of the model takes {bare:.0f} µs. {runs} runs of {steps} steps each, ± one standard error.",
        f"{versions}, Python {platform.python_version()}.",
        f"Reproduce with `python benchmarks/inside_cost.py --runs {runs} --steps {steps} --write`.",
    ]
    return "\n".join(lines)


def _label(name):
    if name == TRACEML:
        return f"TraceML {importlib.metadata.version('traceml-ai')}, `trace_step`"
    return "torch.profiler, CPU activity" if name == PROFILER else name.replace("diagnose()", "`diagnose()`")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--write", action="store_true", help="put the table into docs/overhead.md")
    parser.add_argument("--one", nargs=3, metavar=("TOOL", "KIND", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        tool, kind, into = options.one
        bare, model = {"empty": empty_steps, "model": model_steps}[kind]()
        Path(into).write_text(json.dumps(MEASURES[tool](bare, model, options.steps)))
        return
    missing = Path(sys.executable).with_name("traceml").exists() is False
    if missing:
        print(NO_TRACEML)
    found = collect(options.runs, options.steps, [tool for tool in MEASURES if tool != TRACEML or not missing])
    text = table(found, options.runs, options.steps) + (f"\n{NO_TRACEML}" if missing else "")
    print(text)
    if options.write:
        fill("overhead.md", "inside", text)


if __name__ == "__main__":
    main()
