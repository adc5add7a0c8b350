"""Files as another process sees them; the process is this one, or its root a folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfdoctor.probes.readers.file_view import FileView


@pytest.fixture
def view(tmp_path: Path) -> Iterator[FileView]:
    """Of a process whose root is a folder, and whose working folder is /home there."""
    process = tmp_path / "proc" / "7"
    process.mkdir(parents=True)
    (tmp_path / "root" / "home").mkdir(parents=True)
    (process / "root").symlink_to(tmp_path / "root")
    (process / "cwd").symlink_to("/home")
    made = FileView(7, tmp_path / "proc")
    yield made
    made.close()


def test_a_file_is_read_as_this_process_sees_it(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"x = 1\n")
    view = FileView(os.getpid())
    assert view.read(str(file), 100) == (b"x = 1\n", file.stat().st_mtime_ns)
    view.close()


def test_paths_and_links_lead_to_where_they_do_for_that_process(view: FileView, tmp_path: Path) -> None:
    home = tmp_path / "root" / "home"
    (home / "train.py").write_bytes(b"theirs")
    (home / "link.py").symlink_to("/home/train.py")
    (home / "out.py").symlink_to("../../../train.py")
    (tmp_path / "train.py").write_bytes(b"ours")
    assert {view.read(name, 100)[0] for name in ("/home/train.py", "train.py", "/home/link.py")} == {b"theirs"}
    with pytest.raises(FileNotFoundError):
        view.read("/home/out.py", 100)
    with pytest.raises(FileNotFoundError):
        view.read(str(tmp_path / "train.py"), 100)


def test_only_regular_files_of_a_reasonable_size_are_read(view: FileView, tmp_path: Path) -> None:
    home = tmp_path / "root" / "home"
    os.mkfifo(home / "pipe.py")
    (home / "large.py").write_bytes(bytes(101))
    for name in ("pipe.py", "large.py", "/home"):
        with pytest.raises(OSError, match=r"regular|larger"):
            view.read(name, 100)


def test_it_stays_good_when_the_process_has_gone(view: FileView, tmp_path: Path) -> None:
    (tmp_path / "root" / "home" / "a.py").write_bytes(b"x")
    (tmp_path / "proc" / "7" / "root").unlink()
    assert view.read("a.py", 100)[0] == b"x"
    with pytest.raises(FileNotFoundError):
        FileView(7, tmp_path / "proc")
