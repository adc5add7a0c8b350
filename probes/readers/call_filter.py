"""A filter for calls, which the kernel runs at each: only those count whose name argument begins in a given way.

It is a program of a dozen instructions for the kernel's virtual machine (bpf(2); instructions and their numbers:
<linux/bpf.h> and "BPF Instruction Set Architecture", RFC 9669). It reads 16 bytes of the caller's memory, and tells the
kernel whether to write the call down. It is gone when its file and the event's are closed.
"""

import ctypes
import os
import platform
import struct

from perfdoctor.probes import Refusal

# How far into the name it looks, the closing zero included.
REACH = 16

_SYSCALL = {"x86_64": 321, "aarch64": 280}  # bpf
_PROG_LOAD, _TYPE_KPROBE = 5, 2
_READ_USER = 112  # bpf_probe_read_user, Linux 5.5 and later
# What the helper may be called from: it is the kernel's, under its licence.
_LICENCE = b"Dual MIT/GPL"
_ATTR_SIZE = 120

# Codes of instructions, as used here.
_ADD, _COPY, _SET, _SET_WIDE = 0x07, 0xBF, 0xB7, 0x18
_LOAD, _STORE, _IF_OTHER, _CALL, _EXIT = 0x79, 0x7A, 0x5D, 0x85, 0x95
_FRAME = 10  # the register with the end of the program's own memory
_POINTER, _NAME = -8, -24  # what it keeps there

# Where the saved registers have the second argument of a function. The first is where to put its result, if that is an
# object, which 64-bit Arm passes in a register of its own (System V ABI for x86-64, 3.2.3; AAPCS64, 6.9).
_NAME_ARGUMENT = {"x86_64": 13 * 8, "aarch64": 0}


def load(beginning: str) -> int:
    """Loads a filter for functions that return an object and whose first argument is a ``const std::string&``.

    Args:
        beginning: how the string is to begin, in ASCII; less than ``REACH`` characters.

    Returns:
        Its open file.

    Raises:
        OSError: the kernel refuses it.
    """
    number, argument = _SYSCALL.get(platform.machine()), _NAME_ARGUMENT.get(platform.machine())
    if number is None or argument is None:
        raise OSError(38, f"bpf is not known for {platform.machine()}")
    program = _program(argument, beginning.encode("ascii"))
    code, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(_LICENCE)
    counted = struct.pack("<IIQQ", _TYPE_KPROBE, len(program) // 8, ctypes.addressof(code), ctypes.addressof(licence))
    attributes = ctypes.create_string_buffer(counted.ljust(_ATTR_SIZE, b"\0"), _ATTR_SIZE)
    library = ctypes.CDLL(None, use_errno=True)
    file: int = library.syscall(ctypes.c_long(number), ctypes.c_int(_PROG_LOAD), attributes, ctypes.c_uint(_ATTR_SIZE))
    if file < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return file


def refusal() -> Refusal | None:
    """Why no filter can be loaded here; None if one can. What is loaded to find out is closed at once."""
    try:
        os.close(load("-"))
    except OSError as error:
        return Refusal(f"The system call bpf is refused here ({error.strerror}).", "run perfdoctor as root")
    return None


def _program(argument: int, beginning: bytes) -> bytes:
    """The instructions: 1 is returned for a call that counts, 0 for any other."""
    low, high = struct.unpack("<QQ", beginning.ljust(REACH, b"\0"))
    # A string's first word, in all of libstdc++'s layouts, says where its characters are.
    return b"".join(
        [
            _instruction(_LOAD, 3, 1, argument),
            _instruction(_STORE, _FRAME, 0, _NAME, 0),
            _instruction(_STORE, _FRAME, 0, _NAME + 8, 0),
            *_read(_POINTER, 8),
            _instruction(_LOAD, 3, _FRAME, _POINTER),
            *_read(_NAME, len(beginning)),
            _instruction(_SET, 0, value=0),
            _instruction(_LOAD, 1, _FRAME, _NAME),
            *_wide(2, low),
            _instruction(_IF_OTHER, 1, 2, 5),  # five on: the end
            _instruction(_LOAD, 1, _FRAME, _NAME + 8),
            *_wide(2, high),
            _instruction(_IF_OTHER, 1, 2, 1),
            _instruction(_SET, 0, value=1),
            _instruction(_EXIT),
        ]
    )


def _read(into: int, size: int) -> list[bytes]:
    """Reads the caller's memory, at the address in register 3."""
    return [
        _instruction(_COPY, 1, _FRAME),
        _instruction(_ADD, 1, value=into),
        _instruction(_SET, 2, value=size),
        _instruction(_CALL, value=_READ_USER),
    ]


def _wide(register: int, value: int) -> list[bytes]:
    """Sets a register to 64 bits, which takes two instructions' room."""
    return [
        struct.pack("<BBhI", _SET_WIDE, register, 0, value & 0xFFFFFFFF),
        struct.pack("<BBhI", 0, 0, 0, value >> 32),
    ]


def _instruction(code: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", code, source << 4 | to, offset, value)
