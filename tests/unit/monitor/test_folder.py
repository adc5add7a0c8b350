"""The folder of a watch for days: lines that survive, and a size that is kept."""

from pathlib import Path

import pytest

from perfdoctor.errors import PerfDoctorError
from perfdoctor.monitor import history
from perfdoctor.monitor.folder import Folder
from perfdoctor.monitor.history import History
from perfdoctor.results.history import Appeared, Beat, Happened, Incident, LongStep, Presence, Window

LINES = (
    Presence(1.0, Appeared.FOUND, 7, "python train.py"),
    Beat(2.0, 30.0, 300, 30.0, (LongStep(3.0, 1.5, 17),), {"job_memory_bytes": 1e9}),
    Window(40.0, 10.0, "interval", "io.storage_read", 0.6, 0.9, {"io.storage_read": 0.6}, None, "said", "", 1.2, "w"),
    Incident(1, Happened.SLOWER, 50.0, None, {"before_s": 0.1, "after_s": 0.2}, "io.storage_read", ("a", "b")),
)


def test_what_is_added_is_read_again(tmp_path: Path) -> None:
    kept = History(tmp_path)
    for line in LINES:
        kept.add(line)
    assert tuple(History(tmp_path).lines()) == LINES


def test_a_line_that_a_kill_has_cut_costs_only_itself(tmp_path: Path) -> None:
    kept = History(tmp_path)
    kept.add(LINES[0])
    with kept.path.open("ab") as file:
        file.write(b'{"type":"beat","beg')
    assert tuple(kept.lines()) == LINES[:1]
    kept.add(LINES[1])
    assert tuple(kept.lines()) == LINES[:2]


def test_an_old_history_is_shortened_without_what_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_MOST_BYTES", 20_000)
    kept = History(tmp_path)
    for line in LINES:
        kept.add(line)
    for number in range(1000):
        kept.add(Beat(100.0 + 30 * number, 30.0, 300, 30.0))
        assert kept.path.stat().st_size <= 20_000
    lines = list(kept.lines())
    assert [line for line in lines if not isinstance(line, Beat | Window)] == [LINES[0], LINES[3]]
    assert lines[-1] == Beat(100.0 + 30 * 999, 30.0, 300, 30.0)


def recorded(folder: Folder, kind: str, size: int) -> str:
    path = folder.next(kind)
    path.write_bytes(bytes(size))
    path.with_suffix(".json").write_bytes(b"{}")
    return path.name


def test_the_oldest_go_first_and_last_those_that_show_what_happened(tmp_path: Path) -> None:
    folder = Folder(tmp_path, 3_500)
    with folder.locked():
        names = [recorded(folder, "window" if number % 2 else "counts", 1000) for number in range(6)]
        written = tmp_path / names[0]
        folder.tidy({names[1]}, (written,))
    left = {path.name for path in tmp_path.glob("*.perfdoctor")}
    assert left == {names[0], names[1], names[5]}
    assert {path.stem for path in tmp_path.glob("*.json")} == {Path(name).stem for name in left}


def test_numbers_go_on_where_another_has_stopped(tmp_path: Path) -> None:
    for expected in ("window-000001.perfdoctor", "counts-000002.perfdoctor"):
        folder = Folder(tmp_path, 1_000)
        with folder.locked():
            assert recorded(folder, expected.partition("-")[0], 1) == expected


def test_only_one_at_a_time(tmp_path: Path) -> None:
    first, second = Folder(tmp_path, 1), Folder(tmp_path, 1)
    with first.locked(), pytest.raises(PerfDoctorError, match="Another perfdoctor"), second.locked():
        pass
    with Folder(tmp_path, 1).locked():
        pass


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PerfDoctorError, match="cannot be written"), Folder(tmp_path / "file", 1).locked():
        pass
