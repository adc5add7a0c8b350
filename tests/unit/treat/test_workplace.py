"""Copies of a working folder: what a job finds in them, and what happens to what it writes."""

import os
from pathlib import Path

import pytest

from perfdoctor.diagnosis import Evidence
from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import say
from perfdoctor.treat.workplace import Workplace


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with code, data beside it, and an environment."""
    folder = tmp_path / "work" / "project"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    (folder / "package" / "model.py").write_text("x = 1")
    (folder / "environment").mkdir()
    (folder / "environment" / "pyvenv.cfg").write_text("home = /usr")
    (folder / "latest").symlink_to("package")
    (tmp_path / "work" / "data").mkdir()
    (tmp_path / "work" / "data" / "part-0").write_text("samples")
    return folder


def test_a_job_finds_what_it_would_find(project: Path) -> None:
    place = Workplace(project, [])
    with place.copy() as copy:
        assert (copy / "train.py").read_text() == "print(1)"
        assert (copy / "latest" / "model.py").read_text() == "x = 1"
        assert (copy / "../data/part-0").read_text() == "samples"
        assert (copy / os.path.relpath("/etc/hostname", project)).exists() == Path("/etc/hostname").exists()
        assert len(copy.parts) > len(project.parts)
    place.remove()


def test_what_is_written_there_is_gone(project: Path) -> None:
    place = Workplace(project, [])
    with place.copy() as copy:
        (copy / "train.py").write_text("changed")
        (copy / "package" / "checkpoint.pt").write_text("state")
        (copy / "package" / "model.py").unlink()
    with place.copy() as again:
        assert not (again / "package" / "checkpoint.pt").exists()
        assert (again / "package" / "model.py").exists()
    place.remove()
    assert (project / "train.py").read_text() == "print(1)"
    assert not place.scratch.exists()
    assert (project / "../data/part-0").read_text() == "samples"  # links went, not what they name


def test_environments_and_what_is_named_are_linked(project: Path) -> None:
    place = Workplace(project, [Path("package")])
    with place.copy() as copy:
        assert (copy / "environment").is_symlink()
        assert (copy / "package").is_symlink()
        assert not (copy / "train.py").is_symlink()
    place.remove()


def test_what_is_too_large_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "WORKING_COPY_BYTES", 1000)
    (project / "corpus").mkdir()
    (project / "corpus" / "a").write_bytes(bytes(2000))
    with pytest.raises(PerfDoctorError, match="corpus") as refused:
        Workplace(project, [])
    assert refused.value.hint.endswith("--link corpus")
    Workplace(project, [Path("corpus")]).remove()


@pytest.mark.parametrize("link", ["missing", "../data", "/etc"])
def test_only_what_is_in_the_folder_is_linked(project: Path, link: str) -> None:
    with pytest.raises(PerfDoctorError, match="not in the working folder"):
        Workplace(project, [Path(link)])


def test_what_is_found_in_a_copy_is_told_of_the_source(project: Path) -> None:
    def found(folder: Path) -> Evidence:
        return Evidence("read", say("io.reading", places=(f"{folder}/train.py:3", 1)), "", "stacks")

    place = Workplace(project, [])
    with place.copy() as copy:
        told = place.as_of_the_source(found(copy))
    place.remove()
    assert told == found(project)
