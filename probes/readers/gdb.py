"""Puts a line of Python into a running process: gdb leaves it to the interpreter as a pending call.

While gdb has stopped the process, it lets the main thread call mmap (memory for the line's text, which gdb writes) and
``Py_AddPendingCall(PyRun_SimpleString, text)``, which only puts both on a list and needs no lock of the interpreter's
(docs.python.org/3/c-api/init.html#asynchronous-notifications). The main thread runs the line when it next runs Python
code, and the line gives the memory back. Addresses are read from ELF files beforehand: gdb loads no symbols while the
process stands still.

On x86-64 gdb does not make the calls itself: to put the registers back afterwards it writes all of them, vector
registers included, and up to version 13 it fails where the processor has larger ones than it knows (AMX: Sapphire
Rapids and later, which most H100 stand beside). So it sets only general registers, one by one, and the vector registers
are kept by a few instructions that stand, meanwhile, where the program once started and will not run again.
"""

from __future__ import annotations

import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from perfdoctor.probes import Refusal
from perfdoctor.probes.readers.process import python_of
from perfdoctor.probes.readers.process_memory import Mapping, image_path, mappings
from perfdoctor.probes.readers.procfs import status_fields
from perfdoctor.probes.readers.symbols import Elf

# Versions of CPython on which this was tried.
OLDEST, NEWEST = (3, 10), (3, 13)
# For the text a page; for the calls a stack of four, and up from its end 12 kB for the vector registers (XSAVE with AMX
# takes 11,008 bytes: Intel's manual, volume 1, section 13.5).
PAGE, STACK_END, LENGTH = 4096, 5 * 4096, 8 * 4096
# gdb takes 0.3 s, more where a process has thousands of threads or the machine is busy.
PATIENCE_S = 20.0
# PROT_READ | PROT_WRITE, and MAP_PRIVATE | MAP_ANONYMOUS (asm-generic/mman.h; the same on x86-64 and arm64).
_PROTECTION, _FLAGS = 3, 0x22
_PLACED, _CALLING = re.compile(rb"^placed (-?\d+)$", re.MULTILINE), b"calling\n"
_LINE = """\
try:
 exec({code!r})
except KeyboardInterrupt:
 __import__('_thread').interrupt_main()
except BaseException:
 pass
finally:
 __import__('ctypes').CDLL(None).munmap(__import__('ctypes').c_void_p(%#018lx), {length})
"""


# No symbols are needed, and nothing else that takes time while the process stands still (measured on a busy machine:
# 0.1 s instead of 0.6 s).
_BEFORE = (
    "set auto-solib-add off",
    "set auto-load no",
    "set debuginfod enabled off",
    "set sysroot /nonexistent",
)


class PlacingError(Exception):
    """The line was not placed. The message is one sentence."""


# x86-64: what runs in the process. Words of 8 bytes; r12 has the function, r14 gets what it returned.
_AT_MMAP, _AFTER_MMAP, _AT_CALL, _AFTER_CALL = 0, 3, 3, 31
_INSTRUCTIONS = bytes.fromhex(
    "0f05 cc"  # syscall; int3
    "83c8ff 83caff 480fae2424"  # or eax, -1; or edx, -1; xsave64 [rsp]
    "41ffd4 4996"  # call r12; xchg rax, r14
    "83c8ff 83caff 480fae2c24 cc"  # or eax, -1; or edx, -1; xrstor64 [rsp]; int3
).ljust(32, b"\xcc")
_REGISTERS = (
    *["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip", "eflags", "orig_rax"],
    *(f"r{n}" for n in range(8, 16)),
)
_MMAP_NUMBER = 9  # arch/x86/entry/syscalls/syscall_64.tbl
_AT_ENTRY = 9  # elf.h: where the program starts, in the auxiliary vector


class _Addresses(NamedTuple):
    add_pending_call: int
    run_string: int
    mmap: int
    entry: int


def refusal(pid: int) -> Refusal | None:
    """Why no line can be placed in a Python process; None if one can, as far as it shows.

    Raises:
        OSError: it is gone, or may not be looked at.
    """
    if shutil.which("gdb") is None:
        return Refusal("gdb is not installed.", "apt install gdb, or dnf install gdb")
    python = python_of(pid)
    if python is not None and python.version is not None and not OLDEST <= python.version <= NEWEST:
        return Refusal(f"Pending calls were tried on Python 3.10 to 3.13; process {pid} runs {python}.", "")
    if failed_trial() is not None:
        return Refusal("gdb cannot let processes call functions on this machine.", "a newer gdb")
    return None


@cache
def failed_trial() -> str | None:
    """Why gdb cannot place a line on this machine, as a sentence; None if it can.

    It is tried on a process of our own before it is let near the job. On processors with larger registers than it knows
    gdb 13 cannot put back what it has changed: the job would end by an error that it has nothing to do with.
    """
    loop = "import time\nprint(flush=True)\nfor _ in range(500): time.sleep(0.01)"  # in the end it goes by itself
    with subprocess.Popen([sys.executable, "-ISc", loop], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            place_line(process.pid, "print(flush=True)")
            return None if process.stdout.readline() else "what it placed did not run."
        except PlacingError as error:
            return str(error)
        finally:
            process.kill()


def place_line(pid: int, code: str) -> float:
    """Lets the main thread of a process run a line of Python code when it next runs any.

    Args:
        pid: the process; its interpreter is CPython 3.8 or newer.
        code: the line; what it raises is lost.

    Returns:
        Seconds for which the process stood still, to a few milliseconds.

    Raises:
        PlacingError: it was not placed; the process goes on as before.
    """
    gdb = shutil.which("gdb")
    if gdb is None:
        raise PlacingError("gdb is not installed.")
    commands = _commands(_find_addresses(Path("/proc", str(pid))), code)
    # A session of its own, and a file, not a pipe, to write to: once it lets the process call something, gdb must come
    # to its end, whatever becomes of us.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [gdb, "-batch", "-nx", "--readnever", *_each("-iex", _BEFORE), "-p", str(pid), *_each("-ex", commands)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        stopped_s = _wait(process, pid, output.fileno())
        output.seek(0)
        said = output.read()
    placed = _PLACED.search(said)
    if placed is None or int(placed[1]) != 0:
        raise PlacingError(_complaint(said))
    return stopped_s


def _each(option: str, commands: Iterable[str]) -> Iterator[str]:
    for command in commands:
        yield from (option, command)


def _wait(process: subprocess.Popen[bytes], pid: int, output: int) -> float:
    """Waits for gdb, and ends it where it takes too long: never once it lets the process call something.

    Returns:
        Seconds for which gdb held the process, to a few milliseconds.
    """
    begun = time.monotonic()
    held_from: float | None = None
    while process.poll() is None:
        if held_from is None and _is_traced(pid):
            held_from = time.monotonic()
        if time.monotonic() > begun + PATIENCE_S and _CALLING not in _said(output):
            process.kill()
            process.wait()
        time.sleep(0.003)
    return 0.0 if held_from is None else time.monotonic() - held_from


def _is_traced(pid: int) -> bool:
    try:
        return status_fields(Path(f"/proc/{pid}/status").read_bytes()).get("TracerPid") != "0"
    except OSError:
        return False


def _said(output: int) -> bytes:
    return Path(f"/proc/self/fd/{output}").read_bytes()


def _commands(at: _Addresses, code: str) -> list[str]:
    text = _LINE.format(code=code.replace("%", "%%"), length=LENGTH)
    # What gdb's printf writes for the address takes 18 characters, its conversion 7; and the text ends with a NUL.
    size = len(text % 0) + 1
    if size > PAGE or not text.isascii():
        raise PlacingError("The line of code does not fit into a page.")
    quoted = text.replace("\\", r"\\\\").replace('"', r"\\\"").replace("\n", r"\\n")
    write = f'eval "set var *(char (*)[{size}]) %#lx = \\"{quoted}\\"", $page, $page'
    return [
        "set confirm off",
        # The job's own signals (timers, children) are the job's; one that kills it ends the call.
        "handle all nostop noprint pass",
        "handle SIGSTOP SIGSEGV SIGBUS SIGILL SIGFPE SIGABRT stop",
        "echo calling\\n",
        *(_calls_on_x86_64(at, write) if platform.machine() == "x86_64" else _calls_by_gdb(at, write)),
    ]


def _calls_by_gdb(at: _Addresses, write: str) -> list[str]:
    allocate = f"((unsigned long (*)(unsigned long, unsigned long, int, int, int, long)) {at.mmap:#x})"
    add = f"((int (*)(unsigned long, unsigned long)) {at.add_pending_call:#x})"
    return [
        "set unwindonsignal on",
        f"set $page = {allocate}(0, {LENGTH}, {_PROTECTION}, {_FLAGS}, -1, 0)",
        write,
        f'printf "placed %d\\n", {add}({at.run_string:#x}, $page)',
    ]


def _calls_on_x86_64(at: _Addresses, write: str) -> list[str]:
    """The same calls, with nothing but general registers written.

    Each command is carried out whatever became of the one before: what was changed is always put back.
    """
    words = struct.unpack("<4Q", _INSTRUCTIONS)
    place = [f"*(unsigned long *) {at.entry + 8 * index:#x}" for index in range(len(words))]
    after_mmap, after_call = at.entry + _AFTER_MMAP, at.entry + _AFTER_CALL
    allocate = {"rax": _MMAP_NUMBER, "rdi": 0, "rsi": LENGTH, "rdx": _PROTECTION, "r10": _FLAGS, "r8": -1, "r9": 0}
    add = {"r12": f"{at.add_pending_call:#x}", "rdi": f"{at.run_string:#x}", "rsi": "$page"}
    return [
        *(f"set $was_{register} = ${register}" for register in _REGISTERS),
        *(f"set $code{index} = {where}" for index, where in enumerate(place)),
        *(f"set var {where} = {word:#x}" for where, word in zip(place, words, strict=True)),
        # A system call that was interrupted is taken up again with its own registers, not with these.
        "set $orig_rax = -1",
        *(f"set ${register} = {value}" for register, value in allocate.items()),
        *_run_from(f"{at.entry + _AT_MMAP:#x}"),
        # A negative number is an error's.
        f"set $allocated = (unsigned long) $rip == {after_mmap:#x} && (long) $rax > 0",
        "set $page = (unsigned long) $rax",
        write,
        *(f"set ${register} = {value}" for register, value in add.items()),
        f"set $rsp = $page + {STACK_END}",
        # With nowhere to write to it goes to the trap alone.
        *_run_from(f"$allocated ? {at.entry + _AT_CALL:#x} : {after_mmap - 1:#x}"),
        f'printf "placed %d\\n", (unsigned long) $rip == {after_call:#x} ? (int) $r14 : -2',
        *(f"set var {where} = $code{index}" for index, where in enumerate(place)),
        *(f"set ${register} = $was_{register}" for register in _REGISTERS),
        "queue-signal 0",
    ]


def _run_from(address: str) -> list[str]:
    """To the next trap; another thread's signal may come before it."""
    return [f"set $rip = {address}", "continue", "thread 1"]


def _find_addresses(process: Path) -> _Addresses:
    """Where the functions are that are called.

    Raises:
        PlacingError: they are not found.
    """
    try:
        images = [image for image in mappings(process) if image.is_file and image.offset == 0]
    except OSError:
        raise PlacingError("The process has ended, or may not be looked at.") from None
    first = {image.path: image for image in reversed(images)}
    python = [image for image in first.values() if "python" in image.path.rpartition("/")[2]]
    library = [image for image in first.values() if re.match(r"libc(\.so|-)", image.path.rpartition("/")[2])]
    return _Addresses(
        add_pending_call=_find(process, python, "Py_AddPendingCall"),
        run_string=_find(process, python, "PyRun_SimpleString"),
        mmap=_find(process, library, "mmap"),
        entry=_entry(process),
    )


def _entry(process: Path) -> int:
    """Where the program started."""
    try:
        vector = (process / "auxv").read_bytes()
    except OSError:
        raise PlacingError("The process has ended, or may not be looked at.") from None
    try:
        return int(dict(struct.iter_unpack("@LL", vector))[_AT_ENTRY])
    except (struct.error, KeyError):  # a program of 32 bits
        raise PlacingError("Where the program of the process starts is not known.") from None


def _find(process: Path, images: list[Mapping], name: str) -> int:
    for image in images:
        try:
            with Elf(image_path(process, image)) as elf:
                if found := elf.find(name):
                    return image.start - elf.lowest_address + found[0]
        except (OSError, ValueError):
            continue
    raise PlacingError(f"The function {name} is not found in the process.")


def _complaint(said: bytes) -> str:
    """What gdb says is wrong, as a sentence."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    wrong = [
        line for line in lines if line.startswith(("ptrace: ", "Could not ", "Couldn't ", "Cannot ", "The program "))
    ]
    return f"gdb could not place a line of Python: {(wrong or lines or ['it said nothing'])[0].rstrip('.')}."
