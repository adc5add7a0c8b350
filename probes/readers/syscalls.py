"""Names of the system calls that a training job waits in, and where each keeps what it is about.

Numbers are the kernel's ABI: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (arm64).
"""

import platform

_X86_64 = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 9: "mmap", 10:
    "mprotect",
    11: "munmap", 12: "brk", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23: "select",
    24: "sched_yield", 26: "msync", 28: "madvise", 34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect", 43:
    "accept",
    44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 56: "clone", 57: "fork", 58: "vfork", 59: "execve",
    61: "wait4", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 76: "truncate", 77: "ftruncate", 78:
    "getdents",
    82: "rename", 83: "mkdir", 87: "unlink", 128: "rt_sigtimedwait", 187: "readahead", 202: "futex", 217: "getdents64",
    220: "semtimedop", 221: "fadvise64", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 257: "openat",
    262: "newfstatat", 263: "unlinkat", 264: "renameat", 270: "pselect6", 271: "ppoll", 277: "sync_file_range",
    281: "epoll_pwait", 285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev", 299: "recvmmsg", 306: "syncfs",
    316: "renameat2", 326: "copy_file_range", 332: "statx", 426: "io_uring_enter", 435: "clone3", 437: "openat2",
    441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip

_ARM64 = {
    22: "epoll_pwait", 29: "ioctl", 32: "flock", 35: "unlinkat", 43: "statfs", 45: "truncate", 46: "ftruncate",
    47: "fallocate", 56: "openat", 57: "close", 61: "getdents64", 63: "read", 64: "write", 65: "readv", 66: "writev",
    67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev", 71: "sendfile", 72: "pselect6", 73: "ppoll",
    79: "newfstatat", 80: "fstat", 81: "sync", 82: "fsync", 83: "fdatasync", 84: "sync_file_range", 98: "futex",
    101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield", 137: "rt_sigtimedwait", 192: "semtimedop",
    202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 213: "readahead",
    214: "brk", 215: "munmap", 220: "clone", 221: "execve", 222: "mmap", 226: "mprotect", 227: "msync", 233: "madvise",
    242: "accept4", 243: "recvmmsg", 260: "wait4", 267: "syncfs", 276: "renameat2", 285: "copy_file_range", 291:
    "statx",
    426: "io_uring_enter", 435: "clone3", 437: "openat2", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip

NAMES = {"x86_64": _X86_64, "aarch64": _ARM64, "arm64": _ARM64}.get(platform.machine(), {})

# The first argument is a file descriptor.
ON_DESCRIPTOR = frozenset((
    "read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "fsync", "fdatasync",
    "ftruncate", "fallocate", "sync_file_range", "flock", "recvfrom", "recvmsg", "recvmmsg", "sendto",
    "sendmsg", "accept", "accept4", "connect", "getdents", "getdents64", "epoll_wait", "epoll_pwait",
    "epoll_pwait2", "ioctl", "fstat", "readahead", "fadvise64", "syncfs", "close",
))  # fmt: skip
# The second argument is one: where the data comes from.
ON_SECOND_DESCRIPTOR = frozenset(("sendfile",))
# The first argument points at an array of struct pollfd, the second is its length.
ON_POLL_SET = frozenset(("poll", "ppoll"))
# This argument points at a path.
PATH_ARGUMENT = {
    "open": 0, "stat": 0, "lstat": 0, "unlink": 0, "rename": 0, "mkdir": 0, "truncate": 0,
    "openat": 1, "openat2": 1, "newfstatat": 1, "statx": 1, "unlinkat": 1, "renameat": 1, "renameat2": 1,
}  # fmt: skip
