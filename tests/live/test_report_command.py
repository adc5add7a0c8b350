"""`perfdoctor report`: from a recording to reports, whatever the recording is like."""

import gzip
from pathlib import Path

import pytest

from perfdoctor.recording.schema import Event
from tests.builders.jobs import START, write
from tests.processes.attaching import is_a_diagnosis, needs_root, perfdoctor, refused
from tests.processes.watching import as_nobody


def test_a_recording_of_nothing_has_a_report_and_no_verdict(tmp_path: Path) -> None:
    recording = write(tmp_path / "a")
    answer = perfdoctor("report", recording, "--json", tmp_path / "a.json", "--report", tmp_path / "a.html")
    refused(answer, "No bottleneck can be named", "before anything could be seen")
    is_a_diagnosis(answer.told)
    assert answer.told["breakdown"] == [{"cause": "unattributed", "share": 1.0}]
    assert "</html>" in (tmp_path / "a.html").read_text()


def test_a_recording_that_holds_only_its_end(tmp_path: Path) -> None:
    recording = write(tmp_path / "a", [Event(START + 1, "stopped", "job ended")])
    answer = perfdoctor("report", recording, "--json", tmp_path / "a.json")
    refused(answer, "before anything could be seen")
    assert answer.told["job"]["stopped"] == "job ended"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (None, "There is no recording"),
        (b"", "is empty"),
        (b"once upon a time", "not a perfdoctor recording"),
        (bytes(range(256)) * 33, "not a perfdoctor recording"),
    ],
)
def test_what_is_no_recording_is_refused(content: bytes | None, word: str, tmp_path: Path) -> None:
    file = tmp_path / "a"
    if content is not None:
        file.write_bytes(content)
    answer = perfdoctor("report", file, "--json", tmp_path / "a.json")
    refused(answer, word, "perfdoctor attach")
    assert not (tmp_path / "a.json").exists()


def test_what_a_path_holds_steers_no_terminal_and_breaks_no_line(tmp_path: Path) -> None:
    answer = perfdoctor("report", tmp_path / "new\nline \x1b[31mred \udcff.perfdoctor")
    refused(answer, "There is no recording", "new line \ufffd[31mred \ufffd.perfdoctor")
    assert "\x1b" not in answer.err


@needs_root
def test_a_recording_that_may_not_be_read(tmp_path: Path) -> None:
    file = write(tmp_path / "a")
    file.chmod(0)
    code = (
        "from pathlib import Path\nfrom perfdoctor.recording.reader import Recording\ngive_up()\n"
        "try:\n    Recording.open(Path(sys.argv[1]))\nexcept Exception as error:\n    print(error, error.hint)"
    )
    for folder in (tmp_path, *tmp_path.parents):  # so that the user without rights gets there
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o005)
    said = as_nobody(code, str(file))
    assert f"You have no right to read {file}." in said
    assert f"sudo chmod a+r {file}" in said


@pytest.mark.parametrize("content", [b'{"traceEvents": []}', b'\n [{"ph": "X"}]', gzip.compress(b"{}", mtime=0)])
def test_a_trace_is_pointed_to_analyze(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "my trace"
    file.write_bytes(content)
    refused(perfdoctor("report", file), "not a perfdoctor recording", f"perfdoctor analyze '{file}'")


def test_a_truncated_recording_is_refused(tmp_path: Path) -> None:
    recording = write(tmp_path / "a", (Event(START + i, "kind", "x" * 99) for i in range(2000)))
    recording.write_bytes(recording.read_bytes()[:50_000])
    refused(perfdoctor("report", recording), "damaged")


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    refused(perfdoctor("report", tmp_path), "There is no trace", "no recording", "attach PID --recording")


def test_a_folder_with_the_recording_of_one_host(tmp_path: Path) -> None:
    recording = write(tmp_path / "rank00000-box.perfdoctor")
    assert perfdoctor("report", tmp_path).out == perfdoctor("report", recording).out != ""


def test_hosts_of_which_one_is_damaged_are_read_as_analyze_reads_them(tmp_path: Path) -> None:
    sound = write(tmp_path / "rank00000-a.perfdoctor")
    damaged = write(tmp_path / "rank00001-b.perfdoctor", (Event(START + i, "kind", "x" * 99) for i in range(2000)))
    damaged.write_bytes(damaged.read_bytes()[:50_000])
    assert perfdoctor("report", sound, damaged).out == perfdoctor("analyze", sound, damaged).out != ""


def test_a_report_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    recording = write(tmp_path / "a")
    refused(perfdoctor("report", recording, "--report", tmp_path / "no" / "a.html"), "There is no folder", "mkdir")
    refused(perfdoctor("report", recording, "--report", tmp_path), "is a folder")
