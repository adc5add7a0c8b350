"""The corpus of recordings: what perfdoctor says of each is kept beside it, so that a change of verdict is a diff.

    python tests/recordings/corpus.py show
    python tests/recordings/corpus.py add job.perfdoctor NAME --about "It waits for its disk." --cause io.storage_read
    python tests/recordings/corpus.py update [NAME ...]

``NAME.perfdoctor.xz`` is the recording, ``NAME.json`` says what the job does, what really holds it back where that is
known, and what perfdoctor says of it. ``add`` masks secrets and replaces the names of user and host.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))
from perfdoctor.analysis.from_recording import examine
from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.errors import PerfDoctorError
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Mark
from perfdoctor.reports import json as report
from tests.recordings import packing

FOLDER = Path(__file__).resolve().parent
SUFFIX = ".perfdoctor.xz"
LARGEST = 300_000
_DIGITS = 5
_OF_JOB = ("watched_seconds", "processes", "trainers", "world_size", "settings")
_OF_STUCK = ("kind", "rank", "ranks", "since_s", "confidence", "chain", "waiting")
_LINE = 110
# Fractions of the time: as members with this name, and as all members of a table with this name.
_SHARES, _TABLES_OF_SHARES = {"share", "confidence"}, {"breakdown", "phases", "waits_for"}
_TOLERANCE = 1e-3


def names() -> list[str]:
    """The recordings of the corpus."""
    return sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}"))


def load(name: str) -> dict[str, Any]:
    """What is written about a recording: ``about``, ``recorded``, ``truth`` and ``diagnosis``."""
    return json.loads((FOLDER / f"{name}.json").read_text())  # type: ignore[no-any-return]


def replay(packed: Path) -> dict[str, Any]:
    """The diagnosis of a packed recording, made anew and reduced."""
    return as_kept(examined(packed))


def examined(packed: Path) -> Diagnosis:
    """The diagnosis of a packed recording, made anew."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "job.perfdoctor")
        packing.unpack(packed, file)
        with Recording.open(file) as recording:
            return examine(recording)


def diagnosed(file: Path) -> dict[str, Any]:
    """The diagnosis of a recording, reduced."""
    with Recording.open(file) as recording:
        return as_kept(examine(recording))


def as_kept(diagnosis: Diagnosis) -> dict[str, Any]:
    """A diagnosis as it is kept beside its recording."""
    return reduced(json.loads(report.render(diagnosis)))


def reduced(document: dict[str, Any]) -> dict[str, Any]:
    """The ids and numbers of a JSON report, without its sentences and without what tells whose job it was."""
    told = {
        "verdict": {key: value for key, value in document["verdict"].items() if key != "summary"},
        "breakdown": _by_cause(document["breakdown"]),
        "findings": [_finding(finding) for finding in document["findings"]],
        "ranks": [{**rank, "breakdown": _by_cause(rank["breakdown"])} for rank in document["ranks"]],
        "steps": document["steps"],
        "not_examined": [item["probe"] for item in document["not_examined"]],
        "overhead": document["overhead"],
        "job": {key: document["job"][key] for key in _OF_JOB},
    }
    if document["stuck"] is not None:
        told["stuck"] = {key: document["stuck"][key] for key in _OF_STUCK}
    return _rounded(told)  # type: ignore[no-any-return]


def _by_cause(lines: list[dict[str, Any]]) -> dict[str, float]:
    return {line["cause"]: line["share"] for line in lines}


def _finding(finding: dict[str, Any]) -> dict[str, Any]:
    evidence: dict[str, list[Any]] = {}
    for item in finding["evidence"]:
        again = sum(name == item["name"] or name.startswith(f"{item['name']} (") for name in evidence)
        name = f"{item['name']} ({again + 1})" if item["name"] in evidence else item["name"]
        evidence[name] = [item["value"], item["unit"], item["probe"]]
    kept = {key: finding[key] for key in ("cause", "share", "severity", "predicted_speedup", "ranks")}
    return {**kept, "fixes": len(finding["fixes"]), "evidence": evidence}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def differences(kept: Any, told: Any, where: tuple[str, ...] = ()) -> list[str]:
    """What a diagnosis says otherwise than the one that was kept, one line each.

    Fractions of the time may differ by 0.001, other numbers by a thousandth; all else must be equal.
    """
    if isinstance(kept, dict) and isinstance(told, dict):
        keys = [*kept, *(key for key in told if key not in kept)]
        return [line for key in keys for line in differences(kept.get(key), told.get(key), (*where, key))]
    if isinstance(kept, list) and isinstance(told, list) and len(kept) == len(told):
        pairs = enumerate(zip(kept, told, strict=True))
        return [line for place, (old, new) in pairs for line in differences(old, new, (*where, str(place)))]
    same = _close(kept, told, where) if _is_number(kept) and _is_number(told) else kept == told
    return [] if same else [f"{' / '.join(where)}: {json.dumps(kept)} -> {json.dumps(told)}"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _close(kept: float, told: float, where: tuple[str, ...]) -> bool:
    share = where[-1] in _SHARES or (len(where) > 1 and where[-2] in _TABLES_OF_SHARES)
    return abs(kept - told) <= _TOLERANCE * (1.0 if share else max(abs(kept), abs(told)))


def as_text(value: Any, indent: int = 0) -> str:
    """JSON with one line for whatever fits into one, so that a diff reads well."""
    line = json.dumps(value)
    if (indent > 1 and len(line) + indent <= _LINE) or not isinstance(value, dict | list) or not value:
        return line
    if isinstance(value, dict):
        parts, ends = [f"{json.dumps(key)}: {as_text(item, indent + 1)}" for key, item in value.items()], "{}"
    else:
        parts, ends = [as_text(item, indent + 1) for item in value], "[]"
    inner = ",\n".join(" " * (indent + 1) + part for part in parts)
    return f"{ends[0]}\n{inner}\n{' ' * indent}{ends[1]}"


def write(name: str, document: dict[str, Any], folder: Path = FOLDER) -> None:
    """Writes what is known of a recording."""
    (folder / f"{name}.json").write_text(as_text(document) + "\n")


def add(recording: Path, name: str, told: dict[str, Any], renames: dict[str, str], folder: Path = FOLDER) -> Path:
    """Adds a recording to the corpus.

    Args:
        recording: a file that ``--recording`` left.
        name: what it is to be called.
        told: ``about`` and ``truth``.
        renames: beginnings of paths, for instance, and what is to stand for them.
        folder: where the corpus is.

    Raises:
        PerfDoctorError: it is no recording, or too large.
    """
    opened = Recording.open(recording)
    how = "diagnose" if opened.rows(Mark) else "attach"
    seconds = round((opened.end_ns - opened.start_ns) / 1e9, 1)
    by = opened.meta.get("perfdoctor", "")
    opened.close()
    packed = packing.pack(recording, renames)
    if len(packed) > LARGEST:
        hint = f"Watch a shorter time: perfdoctor attach PID --duration {seconds * 0.9 * LARGEST / len(packed):.0f}."
        message = f"Packed, the recording has {len(packed):,} bytes, and {LARGEST:,} are allowed."
        raise PerfDoctorError(message, hint=hint)
    target = folder / f"{name}{SUFFIX}"
    target.write_bytes(packed)
    said = replay(target)
    before = diagnosed(recording)
    for line in differences(before, said):
        # Places and mounts have other names now, as they should.
        if '-> "' not in line and "settings / mount." not in line:
            print(f"changed by the masking: {line}", file=sys.stderr)
    recorded = {"perfdoctor": by, "duration_s": seconds, "how": how}
    write(name, {"about": told["about"], "recorded": recorded, "truth": told["truth"], "diagnosis": said}, folder)
    return target


def update(chosen: list[str]) -> None:
    """Writes the diagnoses anew, and says which verdicts changed."""
    for name in chosen or names():
        document = load(name)
        said = replay(FOLDER / f"{name}{SUFFIX}")
        lines = differences(document["diagnosis"], said)
        if lines:
            write(name, {**document, "diagnosis": said})
            print(f"{name}: {len(lines)} numbers changed; {_verdict(document['diagnosis'])} -> {_verdict(said)}")


def _verdict(diagnosis: dict[str, Any]) -> str:
    verdict = diagnosis["verdict"]
    return f"{verdict['cause']} {verdict['share']:.2f}"


def show() -> None:
    """Prints a table of the corpus."""
    print(f"{'recording':30}{'truth':26}{'share':>6}  {'verdict':30}{'share':>6}{'conf':>6}{'kB':>5}")
    for name in names():
        document = load(name)
        truth, verdict = document["truth"], document["diagnosis"]["verdict"]
        true = "" if truth["share"] is None else f"{truth['share']:.2f}"
        mark = " " if truth["cause"] in (None, verdict["cause"]) else "!"
        size = (FOLDER / f"{name}{SUFFIX}").stat().st_size / 1000
        said = f"{mark} {_at_rank(verdict['cause'], verdict['straggler_rank'])}"
        print(
            f"{name:30}{_at_rank(truth['cause'], truth['straggler_rank']):26}{true:>6}  {said:30}"
            f"{verdict['share']:6.2f}{verdict['confidence']:6.2f}{size:5.0f}"
        )


def _at_rank(cause: str | None, rank: int | None) -> str:
    return (cause or "-") if rank is None else f"{cause} @{rank}"


def truth(cause: str | None, share: float | None, straggler: int | None) -> dict[str, Any]:
    """What really holds a job back, as far as it is known."""
    bottleneck = CAUSES[cause].bottleneck if cause else None
    return {"bottleneck": bottleneck, "cause": cause, "share": share, "straggler_rank": straggler}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("show", help="a table of all recordings")
    updating = commands.add_parser("update", help="write the diagnoses anew")
    updating.add_argument("names", nargs="*", metavar="NAME", help="these only")
    adding = commands.add_parser("add", help="add a recording")
    adding.add_argument("recording", type=Path, metavar="RECORDING", help="file written by --recording")
    adding.add_argument("name", metavar="NAME")
    adding.add_argument("--about", required=True, help="one sentence: what the job does, and what holds it back")
    adding.add_argument("--cause", choices=sorted(CAUSES), help="what really holds it back, if that is known")
    adding.add_argument("--share", type=float, help="1 - its pace / its pace when that was mended, if measured")
    adding.add_argument("--straggler", type=int, metavar="RANK", help="the rank that the others wait for")
    adding.add_argument(
        "--rename", action="append", default=[], metavar="NAME=WORD", help="a name or a path that is nobody's business"
    )
    arguments = parser.parse_args()
    if arguments.command == "show":
        show()
    elif arguments.command == "update":
        update(arguments.names)
    else:
        return _add(arguments)
    return 0


def _add(arguments: argparse.Namespace) -> int:
    told = {
        "about": arguments.about,
        "truth": truth(arguments.cause, arguments.share, arguments.straggler),
    }
    renames = dict(rename.split("=", 1) for rename in arguments.rename)
    try:
        target = add(arguments.recording, arguments.name, told, renames)
    except PerfDoctorError as error:
        print(f"{error}\n  {error.hint}", file=sys.stderr)
        return 1
    print(f"{target.name}: {target.stat().st_size:,} bytes. Look through it before you hand it on; it says:")
    print(f"  {_verdict(load(arguments.name)['diagnosis'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
