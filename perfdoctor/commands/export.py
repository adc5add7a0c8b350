"""Write a recording in the formats of other tools.

perfetto FILE.json      one time axis for ui.perfetto.dev: states, stacks, phases, steps, counters; .json.gz packs it
speedscope FILE.json    Python stacks by thread, for speedscope.app
csv FOLDER              all tables, one file each (docs/notebook.md)
parquet FOLDER          the same as Parquet; needs pyarrow
prometheus FILE.prom    the last figures and the verdict, as a scrape would read them

--otlp sends the same to a collector of OpenTelemetry's.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path

from perfdoctor.commands.arguments import add_otlp_argument
from perfdoctor.errors import PerfDoctorError
from perfdoctor.exports.metrics import JobMetrics, figures
from perfdoctor.exports.otlp import Sender, require_sdk
from perfdoctor.recording.reader import Recording
from perfdoctor.reports.outputs import require_apart, require_folders, require_no_recording, write_bytes

_EXAMPLE = "perfdoctor export RECORDING --to perfetto FILE.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor export``."""
    parser.add_argument("recording", type=Path, metavar="RECORDING", help="file written by --recording")
    parser.add_argument(
        "--to",
        nargs=2,
        action="append",
        default=[],
        metavar=("KIND", "PATH"),
        help=f"{', '.join((*_FILES, *_FOLDERS))}, and where to (may be repeated)",
    )
    add_otlp_argument(parser)
    parser.add_argument("--force", action="store_true", help="replace files that are there already")


def run(arguments: argparse.Namespace) -> int:
    """Writes and sends what was asked for, after all of it was found to be possible."""
    asked = [(kind, Path(path)) for kind, path in arguments.to]
    if not asked and arguments.otlp is None:
        arguments.parser.error("one of the arguments --to and --otlp is required")
    require_apart(*(path for kind, path in asked if kind in _FILES))
    for kind, path in asked:
        _require(kind, path, force=arguments.force)
    if arguments.otlp is not None:
        require_sdk()
    with Recording.open(arguments.recording) as recording:
        for kind, path in asked:
            try:
                _write(kind, recording, path)
            except OSError as error:
                raise PerfDoctorError(
                    f"{path} cannot be written: {error.strerror or error}.", hint="Choose another place."
                ) from None
        if arguments.otlp is not None:
            Sender(arguments.otlp).send(_figures(recording))
    return 0


def _require(kind: str, path: Path, *, force: bool) -> None:
    """Makes sure that this can be written.

    Raises:
        PerfDoctorError: there is no such kind, or something is in the way.
    """
    if kind not in _FILES and kind not in _FOLDERS:
        raise PerfDoctorError(
            f"There is no export {kind!r}; there are {', '.join((*_FILES, *_FOLDERS))}.", hint=_EXAMPLE
        )
    if kind in _FILES:
        require_folders(path)
        require_no_recording(path)
        taken = path.is_file() and path.stat().st_size > 0
    else:
        require_folders(path / "table" if path.is_dir() else path)
        taken = any(path.glob(f"*.{kind}")) if path.is_dir() else path.exists()
    if taken and (not force or (kind in _FOLDERS and not path.is_dir())):
        hint = "Choose another place, or replace it with --force." if not force else "Choose another place."
        raise PerfDoctorError(f"{path} is there already.", hint=hint)


def _write(kind: str, recording: Recording, path: Path) -> None:
    if kind in _FOLDERS:
        # All tables or none: a full disk leaves no part of them.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as beside:
            _FOLDERS[kind](recording, Path(beside))
            path.mkdir(exist_ok=True)
            for table in Path(beside).iterdir():
                table.replace(path / table.name)
        return
    made = _FILES[kind](recording)
    write_bytes(path, gzip.compress(made, 6) if path.suffix == ".gz" else made)


def _perfetto(recording: Recording) -> bytes:
    from perfdoctor.exports import timeline_trace

    return timeline_trace.render(recording)


def _speedscope(recording: Recording) -> bytes:
    from perfdoctor.exports import speedscope

    return speedscope.render(recording)


def _prometheus(recording: Recording) -> bytes:
    from perfdoctor.exports import prometheus

    return prometheus.render(_figures(recording).metrics)


def _figures(recording: Recording) -> JobMetrics:
    from perfdoctor.analysis.from_recording import examine

    return figures(recording, examine(recording))


def _csv(recording: Recording, folder: Path) -> None:
    from perfdoctor.exports import dataframes

    dataframes.write_csv(recording, folder)


def _parquet(recording: Recording, folder: Path) -> None:
    from perfdoctor.exports import dataframes

    dataframes.write_parquet(recording, folder)


_FILES: dict[str, Callable[[Recording], bytes]] = {
    "perfetto": _perfetto,
    "speedscope": _speedscope,
    "prometheus": _prometheus,
}
_FOLDERS: dict[str, Callable[[Recording, Path], None]] = {"csv": _csv, "parquet": _parquet}
