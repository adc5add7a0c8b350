"""Compare a job before and after a change: is it faster, where has the time gone, did the predicted gain come true?

BEFORE and AFTER are recordings (--recording), JSON reports (--json) or profiler traces, a folder with one for each rank
too. A difference is called one only where it exceeds what the runs vary by. With --fail-on-regression the exit status
is 3 where a step takes longer than that and the whole interval says so, and 1 where the runs vary too much to tell.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from perfdoctor.commands.run_paths import Source, read_source
from perfdoctor.compare.compare import compare
from perfdoctor.compare.side import Side, read_side
from perfdoctor.errors import PerfDoctorError
from perfdoctor.reports.outputs import add_output_arguments, asked_files, deliver_rendered, print_text, require_places
from perfdoctor.results.comparison import Comparison

# The exit status where the job is slower than allowed; 1 is that nothing could be determined.
REGRESSION = 3


def percentage(text: str) -> float:
    """Reads ``5%`` or ``5`` as a fraction."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < 1000:
        raise argparse.ArgumentTypeError("must be a percentage, 5% for instance")
    return value / 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``perfdoctor compare``."""
    parser.add_argument("before", type=Path, metavar="BEFORE", help="recording, JSON report or trace as it was")
    parser.add_argument("after", type=Path, metavar="AFTER", help="the same as it is")
    parser.add_argument(
        "--fail-on-regression",
        type=percentage,
        metavar="PERCENT",
        help="exit with status 3 if a step takes longer by more than this, the whole interval beyond it",
    )
    add_output_arguments(parser)
    parser.add_argument("--markdown", type=Path, metavar="FILE.md", help="write the comparison as Markdown")


def run(arguments: argparse.Namespace) -> int:
    """Reads both runs, prints the comparison and writes the reports."""
    files = {**asked_files(arguments), "markdown": arguments.markdown}
    require_places(*files.values(), force=arguments.force)
    limit = arguments.fail_on_regression
    comparison = compare_sources(read_source(arguments.before), read_source(arguments.after), limit)
    _deliver(comparison, files)
    if limit is not None:
        _require_answer(comparison)
    return REGRESSION if comparison.regressed else 0


def compare_sources(before: Source, after: Source, limit: float | None = None) -> Comparison:
    """Compares two runs that were read.

    Args:
        before: the job as it was.
        after: the job as it is.
        limit: that of ``compare``.

    Raises:
        PerfDoctorError: they are one and the same, or one of them is damaged or does not report a training.
    """
    if before.document == after.document:
        raise PerfDoctorError(
            f"{before.path} and {after.path} are the same run.",
            hint="Compare the job as it was with the job after a change.",
        )
    return compare(_side(before), _side(after), limit)


def _side(source: Source) -> Side:
    return read_side(str(source.path), source.kind, source.document)


def _require_answer(comparison: Comparison) -> None:
    """Makes sure that a regression could be detected: a check that cannot fail must not look like one that has passed.

    Raises:
        PerfDoctorError: the pace is not known, or not how much it varies, or that by more than the limit.
    """
    if comparison.regressed is not None:
        return
    if comparison.hidden_by_noise:
        raise PerfDoctorError(
            "Whether the job became slower than allowed cannot be determined: these runs vary by more than the limit.",
            hint="Watch both for longer on a quiet machine, or compare several pairs of runs in turn.",
        )
    raise PerfDoctorError(
        "Whether the job became slower cannot be determined from these runs.",
        hint="Record both runs alike, with diagnose(recording=...) in the loop, and for long enough to hold many "
        "steps.",
    )


def _deliver(comparison: Comparison, files: dict[str, Path | None]) -> None:
    from perfdoctor.reports import compared_console, compared_html, compared_json, compared_markdown

    renders = {
        "json": compared_json.render, "report": compared_html.render, "markdown": compared_markdown.render,
    }  # fmt: skip
    deliver_rendered(comparison, files, renders, compared_console.render, lambda: _annotate(comparison))


def _annotate(comparison: Comparison) -> list[str]:
    """In a workflow of GitHub's: the job's summary and an annotation; returns what went wrong."""
    from perfdoctor.reports import compared_markdown

    if os.environ.get("GITHUB_ACTIONS") == "true":
        print_text(compared_markdown.annotation(comparison) + "\n")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(summary, "a", encoding="utf-8") as file:
                file.write(compared_markdown.render(comparison))
        except OSError as error:
            return [f"The job's summary {summary} cannot be written: {error.strerror}."]
    return []
