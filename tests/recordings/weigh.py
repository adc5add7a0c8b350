"""Weighs what the analysis rests on: moves each threshold, or switches a mechanism off, and replays the corpus.

    python tests/recordings/weigh.py thresholds [--write] [--only NAME ...]
    python tests/recordings/weigh.py mechanisms [--write] [--only NAME ...]

A threshold of which no verdict depends within 30 % is safe where it is; one that turns a verdict says where a mechanism
is missing, or is kept with a reason. A mechanism without which every diagnosis stays as it is can be deleted.
``--write`` puts the table into docs/thresholds.md.
"""

from __future__ import annotations

import argparse
import importlib
import lzma
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent
PAGE = "thresholds.md"
MOVES = (0.7, 1.3)
# A share that moves by less is not worth a word.
_WORTH_NAMING = 0.001


class Change(NamedTuple):
    """What is otherwise than usual: a name in a module, and what stands there instead.

    Attributes:
        value: a threshold's factor, or the name of one of ``REPLACEMENTS``.
    """

    module: str
    name: str
    value: float | str


class Verdict(NamedTuple):
    """What a diagnosis comes to.

    Attributes:
        whole: all of it, as the corpus keeps it.
    """

    cause: str | None
    straggler: int | None
    shares: Mapping[str, float]
    whole: Mapping[str, Any]


def _gives(make: Callable[[], Any]) -> Callable[..., Any]:
    """A function that answers with the same whatever it is asked."""
    return lambda *_, **__: make()


def _first(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _second(_: Any, value: Any, *__: Any, **___: Any) -> Any:
    return value


def _joined(_: Any, value: Any, *__: Any, **___: Any) -> Any:
    return [one for some in value for one in some]


REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "none": _gives(lambda: None),
    "no": _gives(bool),
    "zero": _gives(float),
    "one": _gives(lambda: 1.0),
    "empty": _gives(tuple),
    "list": _gives(list),
    "set": _gives(frozenset),
    "mapping": _gives(dict),
    "first": _first,
    "second": _second,
    "joined": _joined,
}
_ATTRIBUTION, _TIMELINE = "perfdoctor.attribution", "perfdoctor.timeline"
# A mechanism by its name, and how it is switched off.
MECHANISMS: dict[str, Change] = {
    "loop positions (prepares, afterwards)": Change(f"{_TIMELINE}.stacks", "with_loop_positions", "second"),
    "stand-ins for failed stack samples": Change(f"{_TIMELINE}.locator", "find_failed", "none"),
    "stacks that fit the state": Change(f"{_TIMELINE}.locator", "_fits", "first"),
    "how likely a state is at a stack": Change(f"{_TIMELINE}.stack_states", "StackStates.likelihood", "one"),
    "weighing samples by the kernel's clocks": Change(f"{_ATTRIBUTION}.attribute", "as_counted", "first"),
    "GIL switches": Change(f"{_ATTRIBUTION}.habits", "gil_switching", "zero"),
    "memory copied after forks": Change(f"{_ATTRIBUTION}.habits", "read_forks", "empty"),
    "waits for restarted workers": Change(f"{_ATTRIBUTION}.habits", "_restart_waits", "empty"),
    "pipeline: what goes with the largest stage": Change(f"{_ATTRIBUTION}.attribute", "charge_slowest_stage", "second"),
    "excess of late ranks": Change(f"{_ATTRIBUTION}.attribute", "charge_excess", "first"),
    "latency, not bandwidth": Change(f"{_ATTRIBUTION}.attribute", "name_latency", "joined"),
    "mutual rank waits": Change(f"{_ATTRIBUTION}.collectives", "AllRanks.mutual", "zero"),
    "waits that only ranks are left for": Change(
        f"{_ATTRIBUTION}.collectives", "CollectiveWaits._only_ranks_are_left", "no"
    ),
    "arithmetic beside the model": Change(f"{_ATTRIBUTION}.habits", "_computes_beside", "no"),
    "functions that run without torch": Change(f"{_ATTRIBUTION}.mix_of_phases", "functions_outside_torch", "empty"),
    "code that certainly ran at a line": Change(f"{_ATTRIBUTION}.mix_of_phases", "code_of_lines", "empty"),
    "steps too short for code samples (blurred)": Change(f"{_ATTRIBUTION}.mix_of_phases", "is_blurred", "no"),
    "libraries within a step": Change(f"{_ATTRIBUTION}.mix_of_phases", "misplaced", "zero"),
    "cores idle outside the job's mask": Change(f"{_TIMELINE}.contention", "CpuContention._idle_outside", "zero"),
    "locks of the job's own": Change(f"{_TIMELINE}.locks", "Locks.part", "zero"),
    "passes without training, by their length": Change(f"{_TIMELINE}.locator", "evaluation_spans", "list"),
    "loops beside steps": Change(f"{_TIMELINE}.evaluation", "_loops_beside_steps", "set"),
    "models known by their backward pass": Change(f"{_TIMELINE}.loop_positions", "_calls_by_backward", "mapping"),
    "both passes in one call": Change(f"{_TIMELINE}.loop_positions", "_have_both", "no"),
    "rounds between model and backward pass": Change(f"{_TIMELINE}.loop_positions", "_is_between", "no"),
    "calls below the training loop": Change(f"{_TIMELINE}.stacks", "with_calls_below", "second"),
    "objects that batches are taken apart into": Change(f"{_ATTRIBUTION}.habits", "_taking_apart", "zero"),
    "threads that live too short to be seen": Change(f"{_ATTRIBUTION}.habits", "_has_unseen_threads", "no"),
    "what all steps of a pass share": Change(f"{_TIMELINE}.stacks", "with_passes", "second"),
    "waits for a device without sleep": Change(f"{_ATTRIBUTION}.habits", "_waits_awake", "set"),
    "kernel time beyond the usual": Change(f"{_ATTRIBUTION}.habits", "_kernel_time_beyond_usual", "zero"),
    "pages that are fresh": Change(f"{_ATTRIBUTION}.habits", "_fresh_pages", "zero"),
    "device memory that the kernel maps": Change(f"{_ATTRIBUTION}.mix_of_phases", "mapping_by_phase", "mapping"),
    "suppliers in an event loop": Change(f"{_ATTRIBUTION}.suppliers", "_event_loop", "list"),
    "bytes that queue up": Change(f"{_ATTRIBUTION}.passes", "_queue_up", "no"),
    "busy time without the front end": Change(f"{_ATTRIBUTION}.gpu_use", "GpuUse.without_front_end", "second"),
    "ordinary Python overhead": Change("perfdoctor.analysis.from_case", "least_shares", "mapping"),
    "single stretches": Change("perfdoctor.analysis.from_case", "single_stretches", "mapping"),
}


def changes() -> dict[str, Change]:
    """Mechanisms, and each classifier and thread-level rule that can be left out by itself."""
    found = dict(MECHANISMS)
    for module, table in ((f"{_ATTRIBUTION}.trainers", "TRAINER"), (f"{_ATTRIBUTION}.suppliers", "SUPPLIER")):
        for classify in getattr(importlib.import_module(module), table):
            found[f"{table.lower()} classifier {classify.__name__}"] = Change(module, table, classify.__name__)
    return found


def apply(change: Change | None) -> None:
    """Makes the change, in a process that has not loaded the analysis yet."""
    if change is None:
        return
    module = importlib.import_module(change.module)
    if isinstance(change.value, float):
        threshold = getattr(module, change.name)
        setattr(module, change.name, type(threshold)(threshold * change.value, threshold.unit, threshold.source))
    elif change.name in ("TRAINER", "SUPPLIER"):
        for table in (change.name, "LATE_RANK"):
            if hasattr(module, table):
                kept = tuple(one for one in getattr(module, table) if one.__name__ != change.value)
                setattr(module, table, kept)
    else:
        holder, _, name = change.name.rpartition(".")
        target = getattr(module, holder) if holder else module
        if not hasattr(target, name):
            raise AttributeError(f"{change.module} has no {change.name}: mend the table of mechanisms")
        setattr(target, name, REPLACEMENTS[change.value])


def replay(change: Change | None, folder: str) -> dict[str, Verdict]:
    """What each recording comes to with a change."""
    sys.path.insert(0, str(ROOT))
    apply(change)
    from tests.recordings import corpus

    found = {}
    for file in sorted(Path(folder).glob("*.perfdoctor")):
        diagnosis = corpus.diagnosed(file)
        verdict = diagnosis["verdict"]
        found[file.stem] = Verdict(verdict["cause"], verdict["straggler_rank"], diagnosis["breakdown"], diagnosis)
    return found


def unpacked(folder: Path) -> None:
    """Unpacks the corpus, once for all replays."""
    for packed in FOLDER.glob("*.perfdoctor.xz"):
        (folder / packed.name.removesuffix(".xz")).write_bytes(lzma.decompress(packed.read_bytes()))


def turned(usual: Mapping[str, Verdict], found: Mapping[str, Verdict]) -> list[str]:
    """Recordings whose verdict names another cause or straggler, with the new one."""
    return [
        f"{name} ({verdict.cause})"
        for name, verdict in found.items()
        if (verdict.cause, verdict.straggler) != (usual[name].cause, usual[name].straggler)
    ]


def changed(usual: Mapping[str, Verdict], found: Mapping[str, Verdict]) -> int:
    """How many diagnoses say anything else: a share, a line, advice, what it brings."""
    from tests.recordings import corpus

    return sum(bool(corpus.differences(usual[name].whole, verdict.whole)) for name, verdict in found.items())


def largest(usual: Mapping[str, Verdict], found: Mapping[str, Verdict]) -> tuple[float, str]:
    """The share that changed most, and in which recording."""
    most = (0.0, "")
    for name, verdict in found.items():
        causes = {*verdict.shares, *usual[name].shares}
        for cause in causes:
            change = abs(verdict.shares.get(cause, 0.0) - usual[name].shares.get(cause, 0.0))
            most = max(most, (change, f"{name}, {cause}"))
    return most


def replays(wanted: Mapping[str, Change]) -> Iterator[tuple[str, dict[str, Verdict], dict[str, Verdict]]]:
    """Each change with what the corpus comes to usually, and with it. Every replay has a fresh process."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        unpacked(Path(folder))
        with ProcessPoolExecutor(os.cpu_count(), mp_context=context, max_tasks_per_child=1) as pool:
            usual = pool.submit(replay, None, folder)
            running = {name: pool.submit(replay, change, folder) for name, change in wanted.items()}
            for name, done in running.items():
                yield name, usual.result(), done.result()


def weigh_mechanisms(only: list[str], *, write: bool) -> None:
    """Prints what turns without each mechanism; writes the table if asked."""
    wanted = {name: change for name, change in changes().items() if not only or any(one in name for one in only)}
    rows = {}
    for name, usual, found in replays(wanted):
        share, where = largest(usual, found)
        moved = f"{share:.3f} ({where})" if share >= _WORTH_NAMING else "none"
        said = ", ".join(turned(usual, found)) or "none"
        others = changed(usual, found) or "none"
        print(f"{name}: turns {said}; largest change of a share {moved}; changes {others}", flush=True)
        rows[name] = f"| {name} | {said} | {moved} | {others} |"
    if write:
        rows = {**_written(changes()), **rows}
        columns = ("without", "verdicts that turn", "largest change of a share", "diagnoses that change")
        _write_table("mechanisms", columns, [rows[name] for name in changes() if name in rows])


def weigh_thresholds(only: list[str], *, write: bool) -> None:
    """Prints what turns when each threshold is moved; writes the page if asked."""
    from perfdoctor.knowledge import thresholds

    known = {name: value for name, value in vars(thresholds).items() if isinstance(value, thresholds.Threshold)}
    module = thresholds.__name__
    wanted = {
        f"{name} {factor}": Change(module, name, factor)
        for name in known
        if not only or name in only
        for factor in MOVES
    }
    effects: dict[str, list[str]] = {}
    for key, usual, found in replays(wanted):
        name, factor = key.split(" ")
        share, where = largest(usual, found)
        said = turned(usual, found)
        print(f"{name} x {factor}: {', '.join(said) or '-'}; largest change {share:.3f} {where}", flush=True)
        sign = "-" if float(factor) < 1 else "+"
        effects.setdefault(name, []).extend(f"{sign}30 %: {one}" for one in said)
    if write:
        made = {
            name: f"| `{name}` | {float(known[name]):g} | {known[name].unit} | {known[name].source} | "
            f"{'; '.join(effect) or 'none'} |"
            for name, effect in effects.items()
        }
        kept = _written([f"`{name}`" for name in known])
        rows = [row for name in known if (row := made.get(name) or kept.get(f"`{name}`"))]
        columns = ("threshold", "value", "unit", "source", "verdicts that turn when it is moved by 30 %")
        _write_table("thresholds", columns, rows)


def _written(names: Iterable[str]) -> dict[str, str]:
    """The rows that the page has, by the name that each begins with."""
    cells = (
        (line.split(" | ", 1)[0].removeprefix("| "), line)
        for line in (ROOT / "docs" / PAGE).read_text("utf-8").splitlines()
    )
    return {name: line for name, line in cells if name in {*names}}


def _write_table(name: str, columns: Sequence[str], rows: Sequence[str]) -> None:
    fill = importlib.import_module("examples.documents").fill
    fill(PAGE, name, "\n".join([f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *rows]))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("thresholds", "mechanisms"))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--write", action="store_true", help="write docs/thresholds.md; rows of others are kept")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if arguments.what == "mechanisms":
        weigh_mechanisms(arguments.only, write=arguments.write)
    else:
        weigh_thresholds(arguments.only, write=arguments.write)


if __name__ == "__main__":
    main()
