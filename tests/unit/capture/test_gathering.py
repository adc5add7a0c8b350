"""Recordings of several hosts come together in one folder or at one URL, each under a name of its own."""

from pathlib import Path

import pytest

from perfdoctor.capture.gathering import take_place
from perfdoctor.errors import PerfDoctorError

CONTENT = b"what was recorded"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "here.perfdoctor"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture(params=["folder", "url"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where recordings come together, which is not there yet."""
    folder = tmp_path / "shared" / "run 1"
    if request.param == "folder":
        return str(folder)
    pytest.importorskip("fsspec")
    return f"file://{folder}"


def lying(shared: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(shared.removeprefix("file://")).iterdir()}


def test_each_host_has_a_name_of_its_own(shared: str, recording: Path) -> None:
    places = [take_place(shared, host, ranks) for host, ranks in (("node1", [5, 4]), ("node0", [0]), ("a b/c", []))]
    assert lying(shared) == dict.fromkeys(
        ("rank00004-node1.perfdoctor", "rank00000-node0.perfdoctor", "a_b_c.perfdoctor"), b""
    )
    for place in places:
        place.deliver(recording)
    assert set(lying(shared).values()) == {CONTENT}
    assert len(lying(shared)) == 3


def test_hosts_of_one_name_and_later_runs_overwrite_nothing(shared: str, recording: Path) -> None:
    """Containers are often called alike."""
    for _ in range(3):
        take_place(shared, "box", [0]).deliver(recording)
    names = ["rank00000-box-2.perfdoctor", "rank00000-box-3.perfdoctor", "rank00000-box.perfdoctor"]
    assert sorted(lying(shared)) == names


def test_a_name_that_nothing_was_recorded_for_is_given_back(shared: str) -> None:
    take_place(shared, "box", [0]).give_up()
    assert lying(shared) == {}


def test_where_nothing_can_be_written_is_said_before_anything_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PerfDoctorError, match=r"Nothing can be written to .*file/run: Not a directory\.") as caught:
        take_place(str(tmp_path / "file" / "run"), "box", [0])
    assert "--gather" in caught.value.hint
    with pytest.raises(PerfDoctorError, match="Protocol not known: nosuch"):
        take_place("nosuch://bucket/run", "box", [0])


def test_a_copy_that_fails_leaves_the_recording_where_it_is(shared: str, recording: Path) -> None:
    place = take_place(shared, "box", [0])
    folder = Path(shared.removeprefix("file://"))
    (folder / "rank00000-box.perfdoctor").unlink()
    folder.rmdir()
    folder.write_bytes(b"")
    with pytest.raises(PerfDoctorError, match=r"could not be copied to .*rank00000-box\.perfdoctor: ") as caught:
        place.deliver(recording)
    assert str(recording) in caught.value.hint
    assert caught.value.recording == recording
    assert recording.read_bytes() == CONTENT
