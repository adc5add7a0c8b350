"""Hands a diagnosis to the reports, and writes them where the user asked."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from perfdoctor.diagnosis import Diagnosis, Why
from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import Text
from perfdoctor.reports.language import LANGUAGES, for_stream
from perfdoctor.reports.wording import label, worded
from perfdoctor.results.treatment import Treated

T = TypeVar("T")

# Without one of these probes there may be no verdict, whatever the job does.
_NEEDED = ("threads", "stacks")
# How perfdoctor's reports begin: JSON, the page, the patch of a treatment, and all of a comparison in Markdown.
PATCH_BEGINS = "# Made by perfdoctor treat; for `patch -p1` in the working folder."
# How its recordings do, which are never replaced by anything else: they cannot be made again (recording/schema.py).
_RECORDING = re.compile(rb"SQLite format 3\0.{52}pdoc", re.DOTALL)
_BEGINNING = 1 << 16  # the page's title stands before its style
_REPORTS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        rb'\s*\{\s*"schema": \d+,\s*"perfdoctor": "',
        rb"<!doctype html>.*?<title>[^<]*\bperfdoctor</title>",
        re.escape(PATCH_BEGINS).encode(),
        rb"## .*\n\nperfdoctor [^\n]+\n\Z",
    )
)


class Output(NamedTuple):
    """A file that the user may ask for.

    Attributes:
        name: of its option, ``--json``, and of the argument of ``deliver``.
        file: how its file is called in the help.
        says: what the option does.
        module: has ``render(diagnosis)``, which returns the text, and ``names_bottleneck(text)``, which recognises it.
    """

    name: str
    file: str
    says: str
    module: str


OUTPUTS = (
    Output("json", "FILE.json", "write the diagnosis as JSON", "perfdoctor.reports.json"),
    Output("report", "FILE.html", "write an HTML report (one file, opens offline)", "perfdoctor.reports.html"),
)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that say where reports go, and in which language."""
    for one in reversed(OUTPUTS):
        parser.add_argument(f"--{one.name}", type=Path, metavar=one.file, help=one.says)
    parser.add_argument("--lang", choices=LANGUAGES, help="language of what is said (default: by the locale; JSON: en)")
    parser.add_argument("--force", action="store_true", help="replace files that perfdoctor would leave as they are")


def asked_files(arguments: argparse.Namespace) -> dict[str, Path | None]:
    """Where reports go, by the names of the outputs."""
    return {one.name: getattr(arguments, one.name) for one in OUTPUTS}


def require_places(*paths: Path | None, force: bool = False) -> None:
    """Makes sure that reports can be written there, before the job is watched rather than after.

    Args:
        paths: where to.
        force: whether files that are no reports of perfdoctor's may be replaced.

    Raises:
        PerfDoctorError: the folder does not exist or cannot be written to, the path is a folder itself, a recording or
            a file that perfdoctor has not written is there, or one path is named twice.
    """
    require_folders(*paths)
    require_apart(*paths)
    for path in paths:
        require_no_recording(path)
        if path is not None and not force and not may_replace(path):
            raise PerfDoctorError(_taken(path), hint="Choose another file, or replace it with --force.")


def require_apart(*paths: Path | None) -> None:
    """Makes sure that no file is to be written twice; a pipe or device takes more than one text.

    Raises:
        PerfDoctorError: one is.
    """
    files = [path for path in paths if path is not None and (path.is_file() or not path.exists())]
    places = [path.resolve() for path in files]
    twice = next((path for number, path in enumerate(files) if places[number] in places[:number]), None)
    if twice is not None:
        raise PerfDoctorError(f"{twice} is named for two things.", hint="Name a file of its own for each.")


def require_no_recording(path: Path | None) -> None:
    """Makes sure that something else than a recording may take a place.

    Raises:
        PerfDoctorError: a recording is there, which cannot be made again.
    """
    if path is not None and _RECORDING.match(_begins(path) or b""):
        raise PerfDoctorError(
            f"{path} is a recording, which cannot be made again.", hint="Choose another file, or remove it first."
        )


def require_folders(*paths: Path | None) -> None:
    """Makes sure that files can be written there, whatever is there now.

    Raises:
        PerfDoctorError: the folder does not exist or cannot be written to, or the path is a folder itself.
    """
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise PerfDoctorError(f"{path} is a folder.", hint=f"Name a file, for instance {path / 'perfdoctor'}.")
        if not path.parent.is_dir():
            make = f"mkdir -p {shlex.quote(str(path.parent))}"
            raise PerfDoctorError(f"There is no folder {path.parent}.", hint=make)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            why = "no right, or a read-only file system"
            raise PerfDoctorError(f"{path} cannot be written: {why}.", hint="Choose another place.")


def deliver(diagnosis: Diagnosis, *, recording: Path | None = None, force: bool = False, **files: Path | None) -> None:
    """Writes the files that were asked for and prints the diagnosis, each of them even if another one fails.

    The arguments are those of ``write_outputs``.

    Raises:
        PerfDoctorError: one could not be written; the recording is kept, and the hint says how to use it.
    """
    try:
        write_outputs(diagnosis, recording=recording, force=force, **files)
    finally:
        show(diagnosis)


def show(diagnosis: Diagnosis) -> None:
    """Prints the diagnosis, in colour on a terminal."""
    print_text(console_text(diagnosis, sys.stdout))


def print_text(text: str) -> None:
    """Prints a report.

    Raises:
        PerfDoctorError: standard output takes nothing.
    """
    try:
        sys.stdout.flush()  # what was printed before comes first
        sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "ascii", errors="replace"))
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise PerfDoctorError(
            f"The diagnosis cannot be printed: {error.strerror}.", hint="Send the output elsewhere, or use --json FILE."
        ) from None


def console_text(diagnosis: Diagnosis, stream: TextIO, treated: Treated | None = None) -> str:
    """The diagnosis as text for a stream, as wide as its terminal, and in colour there; below it what was tried."""
    from perfdoctor.reports import console, treated_console

    with for_stream(stream):
        text = console.render(diagnosis, **terminal_style(stream))
        return text if treated is None else f"{text}\n{treated_console.render(treated, **terminal_style(stream))}"


def rendered(name: str, diagnosis: Diagnosis, treated: Treated | None = None) -> str:
    """The text of one of ``OUTPUTS``, with what was tried from inside, if anything was."""
    if treated is None:
        (module,) = (one.module for one in OUTPUTS if one.name == name)
        return str(import_module(module).render(diagnosis))
    from perfdoctor.reports import treated_html, treated_json

    renders = {"json": treated_json.render_within, "report": treated_html.render}
    return renders[name](replace(treated, diagnosis=diagnosis))


def terminal_style(stream: TextIO) -> dict[str, Any]:
    """How a text is drawn for a stream: the arguments ``width``, ``color`` and ``encoding`` of ``console.render``."""
    on_terminal = stream.isatty()
    return {
        "width": shutil.get_terminal_size().columns if on_terminal else 100,
        "color": on_terminal and "NO_COLOR" not in os.environ,
        "encoding": stream.encoding or "ascii",
    }


def write_outputs(
    diagnosis: Diagnosis,
    treated: Treated | None = None,
    /,
    *,
    recording: Path | None = None,
    force: bool = False,
    **files: Path | None,
) -> None:
    """Writes the files that were asked for, all of them even if one fails.

    A diagnosis that names no bottleneck does not replace a report that names one, unless it is forced to.

    Args:
        diagnosis: what to write.
        treated: what was tried from inside, to be written with it.
        recording: what it was made from, to make it again; None where the user has that anyway.
        force: whether to replace whatever is there.
        files: where to, by the names of ``OUTPUTS``.

    Raises:
        PerfDoctorError: one could not be written; the recording is kept, and the hint says how to use it.
    """
    failed: list[str] = []
    for one in OUTPUTS:
        path = files.get(one.name)
        if path is None:
            continue
        if not force and not may_replace(path):
            failed.append(_taken(path))
        elif not force and diagnosis.verdict.bottleneck is None and _names_one(path):
            print(f"perfdoctor: {label('left_as_it_was', path=str(path))}", file=sys.stderr)
        else:
            failed += write_text(path, rendered(one.name, diagnosis, treated))
    if failed:
        again = f"What was recorded is kept. Write it elsewhere: perfdoctor report {recording} --report FILE.html"
        raise PerfDoctorError(" ".join(failed), hint=again if recording else "Write it elsewhere.", recording=recording)


def deliver_rendered(
    result: T,
    files: Mapping[str, Path | None],
    renders: Mapping[str, Callable[[T], str]],
    console: Callable[..., str],
    afterwards: Callable[[], list[str]] = list,
) -> None:
    """Writes the files that were asked for and prints a result, each of them even if another one fails.

    Args:
        result: what is rendered.
        files: where to, by the names of ``renders``.
        renders: what makes the text of each file.
        console: makes the text that is printed, as ``console.render`` does.
        afterwards: says it elsewhere too, and returns what went wrong.

    Raises:
        PerfDoctorError: one of them could not be written.
    """
    failed: list[str] = []
    for name, render in renders.items():
        if (path := files.get(name)) is not None:
            failed += write_text(path, render(result))
    with for_stream(sys.stdout):
        print_text(console(result, **terminal_style(sys.stdout)))
    failed += afterwards()
    if failed:
        raise PerfDoctorError(" ".join(failed), hint="Write it elsewhere.")


def conclude(diagnosis: Diagnosis, *, hint: Text = "") -> None:
    """Raises if neither a bottleneck could be named nor what holds up a job that is stuck.

    Args:
        diagnosis: what was found.
        hint: the next move; that of a job which was watched if empty.

    Raises:
        PerfDoctorError: with the reason and the next move.
    """
    if diagnosis.verdict.bottleneck is not None or diagnosis.stuck is not None:
        return
    with for_stream(sys.stderr):
        # Where the diagnosis stands on the same terminal already, the reason does too.
        why = "" if sys.stdout.isatty() and sys.stderr.isatty() else worded(diagnosis.verdict.summary)
        raise PerfDoctorError(label("no_verdict", why=why), hint=worded(hint) or next_move(diagnosis))


def next_move(diagnosis: Diagnosis) -> str:
    """What to do where no bottleneck of a job that was watched can be named."""
    if any(missing.probe in _NEEDED and not missing.too_brief for missing in diagnosis.not_examined):
        return label("check_probes", pid=diagnosis.job.get("pid", "PID"))
    if diagnosis.job.get("stopped") == "job ended":
        return label("job_has_ended")
    missing = diagnosis.verdict.missing
    if missing is not None and missing.why is Why.STILL and missing.pid is not None:
        return label("dump_stacks", pid=missing.pid)
    if diagnosis.job.get("trainers") == 0:
        return label("attach_to_training")
    return label("attach_again")


def _taken(path: Path) -> str:
    return f"{path} is there already, and is no report of perfdoctor's."


def may_replace(path: Path) -> bool:
    """Whether nothing is lost that perfdoctor has not made: no file is there, an empty one, or a report of its own."""
    if not path.is_file():  # a pipe, or /dev/stdout, takes whatever is written
        return True
    beginning = _begins(path)
    return beginning == b"" or any(mark.match(beginning or b"") for mark in _REPORTS)


def _begins(path: Path) -> bytes | None:
    """The beginning of a file; None where it cannot be read."""
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(_BEGINNING)
    except OSError:
        return None


def _names_one(path: Path) -> bool:
    """Whether a file is an earlier report, JSON or page, that names a bottleneck."""
    try:
        text = path.read_text("utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return False
    return any(import_module(one.module).names_bottleneck(text) for one in OUTPUTS)


def write_text(path: Path, text: str) -> list[str]:
    """Writes a file whole or not at all; returns what went wrong."""
    try:
        write_bytes(path, text.encode())
    except OSError as error:
        return [f"{path} cannot be written: {error.strerror or error}."]
    return []


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not path.is_file():  # a pipe, or /dev/stdout: it must stay what it is
        path.write_bytes(data)
    else:
        _replace(path.resolve(), data)


def _replace(path: Path, data: bytes) -> None:
    scratch = path.with_name(f".{path.name}.part")
    try:
        scratch.write_bytes(data)
        scratch.replace(path)
    except OSError:
        with suppress(OSError):
            scratch.unlink()
        raise
