"""Copies in memory in place of a job's files: which files, whether there is room, who sees them, and what is left."""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfdoctor.reports.wording import worded
from perfdoctor.treat.staging import MEMORY, Staging, pieces, see
from tests.files import ROOT
from tests.processes.attaching import AS_NOBODY, NOBODY, needs_root, until


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of data with a folder and a link in it."""
    folder = tmp_path / "data"
    (folder / "part").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"a" * 3000)
    (folder / "part" / "b.bin").write_bytes(b"b" * 5000)
    (folder / "latest").symlink_to("part/b.bin")
    return folder


@pytest.fixture
def staging() -> Iterator[Staging]:
    made = Staging()
    before = set(MEMORY.iterdir())
    yield made
    made.remove()
    assert set(MEMORY.iterdir()) <= before


def soon() -> float:
    return time.monotonic() + 60


def test_few_files_are_taken_by_themselves_and_many_with_their_folder() -> None:
    shards = {f"/data/shard-{number}.bin": 100 for number in range(3)}
    assert pieces({**shards, "/data/index.json": 2, "/etc/hosts": 1}) == tuple(shards)
    images = {f"/data/images/{number % 40}/{number}.jpg": 1 for number in range(200)}
    assert pieces(images) == ("/data/images",)
    few_classes = {f"/data/images/{number % 3}/{number}.jpg": 1 for number in range(200)}
    assert sorted(pieces(few_classes)) == ["/data/images/0", "/data/images/1", "/data/images/2"]
    assert pieces({}) == ()


def test_a_process_sees_the_copies_and_nobody_else_does(data: Path, staging: Staging) -> None:
    assert staging.make([str(data)], math.inf, soon()) == ""
    look = (
        "import json, os, sys; from pathlib import Path; data = Path(sys.argv[1]); "
        "print(json.dumps([(data / 'latest').read_text()[:1], os.stat(data).st_dev, os.access(data, os.W_OK)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", look, str(data)],
        preexec_fn=lambda: see(staging.copies),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == ["b", os.stat(MEMORY).st_dev, False]
    assert os.stat(data).st_dev != os.stat(MEMORY).st_dev or Path(staging.copies[str(data)]) != data
    assert str(data) not in Path("/proc/self/mountinfo").read_text()
    (data / "a.bin").write_bytes(b"as ever")


@needs_root
def test_it_takes_no_root() -> None:
    """But namespaces of users, which the kernel may refuse: then that is said."""
    code = (
        "import math, subprocess, sys, time; from perfdoctor.treat.staging import Staging, see; "
        "from perfdoctor.reports.wording import worded; staging = Staging(); "
        "said = worded(staging.make([sys.argv[1]], math.inf, time.monotonic() + 60)); print(said, flush=True); "
        "said or subprocess.run(['stat', '-c', '%D %u', sys.argv[1]], preexec_fn=lambda: see(staging.copies)); "
        "staging.remove()"
    )
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "a.bin").write_bytes(b"a")
        done = subprocess.run(
            [*AS_NOBODY, sys.executable, "-c", code, folder], capture_output=True, text=True, check=True, cwd=ROOT
        )
    said, *seen = done.stdout.splitlines()
    assert seen == [f"{os.stat(MEMORY).st_dev:x} {NOBODY}"] if not said else "namespaces of users" in said


def test_too_much_is_not_copied(data: Path, staging: Staging) -> None:
    before = set(MEMORY.iterdir())
    assert "half of the free memory" in worded(staging.make([str(data)], 7000, soon()))
    assert "takes too long" in worded(staging.make([str(data)], math.inf, time.monotonic() - 1))
    assert "made by each run" in worded(staging.make([str(data / "gone")], math.inf, soon()))
    assert not staging.copies
    assert set(MEMORY.iterdir()) == before


def test_what_lies_in_memory_already_stays_there(tmp_path: Path, staging: Staging) -> None:
    file = MEMORY / f"{tmp_path.name}.bin"
    file.write_bytes(b"data")
    try:
        assert "in memory already" in worded(staging.make([str(file)], math.inf, soon()))
    finally:
        file.unlink()


def test_a_kill_leaves_nothing_in_memory(data: Path) -> None:
    code = (
        "import math, sys, time; from perfdoctor.treat.staging import Staging; staging = Staging(); "
        "staging.make([sys.argv[1]], math.inf, time.monotonic() + 60); "
        "print(staging.copies[sys.argv[1]], flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(data)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        copy = Path(process.stdout.readline().strip())
        assert (copy / "a.bin").stat().st_size == 3000
        process.kill()
    assert until(lambda: not copy.parent.exists())
