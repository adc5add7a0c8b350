"""What a process runs, by the names of what is mapped into it, and what is read of its interpreter while it goes on."""

import ctypes
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from perfdoctor.probes.readers.cpython import Layout
from perfdoctor.probes.readers.process import versions_of
from perfdoctor.probes.readers.process_memory import Memory, image_path, images
from tests.processes.attaching import job, needs_root

PACKAGES = "/opt/some where/lib/python3.12/site-packages"


def mapped(root: Path, *files: str) -> Path:
    """A /proc with one process that has these files mapped."""
    folder = root / "proc" / "7"
    folder.mkdir(parents=True)
    lines = [f"7f00-7f01 r-xp 00000000 08:01 42                         {file}\n" for file in files]
    (folder / "maps").write_text("".join(lines))
    return folder / "root"


@pytest.mark.parametrize("line", ["__version__ = '2.13.0+cpu'", '__version__ = "2.0.1a0+git123"'])
def test_torch_says_its_version_in_its_package(tmp_path: Path, line: str) -> None:
    inside = mapped(tmp_path, "/usr/lib/libc.so.6", f"{PACKAGES}/torch/lib/libtorch_cpu.so")
    package = Path(f"{inside}{PACKAGES}/torch")
    package.mkdir(parents=True)
    (package / "version.py").write_text(f"from typing import Optional\n{line}\ndebug = False\n")
    assert versions_of(7, tmp_path) == {"python": "3.12", "torch": line.split(" = ")[1].strip("'\"")}


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    mapped(tmp_path, f"{PACKAGES}/torch/lib/libtorch_cpu.so")
    assert versions_of(7, tmp_path) == {"python": "3.12"}
    assert versions_of(8, tmp_path) == {}


def test_this_process_runs_this_python() -> None:
    assert versions_of(os.getpid())["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.parametrize(("word", "ident"), [(0x7F57_C0AE_D640, 0x7F57_C0AE_D640), ((1 << 63) + 5, None)])
def test_what_is_no_address_is_no_threads_identifier(word: int, ident: int | None) -> None:
    """A recording could not hold it: attach had ended in an ``OverflowError``."""
    state = ctypes.c_uint64(word)
    memory = Memory(Path("/proc/self"))
    try:
        layout = Layout(holder=None, collecting=0, thread_id=0, native_id=0)
        assert layout.ident(memory, ctypes.addressof(state)) == ident
    finally:
        memory.close()


SAYS_READY = "echo ready $$; read line"


@needs_root
def test_files_are_found_of_a_process_whose_root_was_changed(tmp_path: Path) -> None:
    """Its maps name them as others see them, and not below its root."""
    root = tmp_path / "root"
    root.mkdir()
    shell = os.path.realpath("/bin/sh")
    inside = f"mount --rbind / {root} && exec chroot {root} {shell} -c {shlex.quote(SAYS_READY)}"
    with job("unshare", "--mount", "sh", "-c", inside) as started:
        process = Path(f"/proc/{started.pid}")
        found = next(image for path, image in images(process).items() if path.endswith(shell))
        assert os.path.samefile(image_path(process, found), shell)


@needs_root
def test_files_are_found_that_were_replaced_since_they_were_mapped(tmp_path: Path) -> None:
    shell = tmp_path / "sh"
    shutil.copy(os.path.realpath("/bin/sh"), shell)
    with job(str(shell), "-c", SAYS_READY) as started:
        process = Path(f"/proc/{started.pid}")
        shell.unlink()
        shell.write_text("another version")
        found = images(process)[str(shell)]
        assert image_path(process, found).read_bytes() == Path("/bin/sh").read_bytes()


def test_torch_says_its_version_where_a_root_was_changed_alone(tmp_path: Path) -> None:
    package = tmp_path / "seen" / "torch"
    mapped(tmp_path, f"{package}/lib/libtorch_cpu.so")
    package.mkdir(parents=True)
    (package / "version.py").write_text("__version__ = '2.6.0'\n")
    assert versions_of(7, tmp_path) == {"torch": "2.6.0"}
