"""What a thread waits in, or does, by its system call (man 2 of each) and by what that is about."""

# Something is written, or made to last; what is closed or renamed may have to be written first.
WRITES = frozenset((
    "write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "ftruncate", "fallocate",
    "sync_file_range", "msync", "syncfs", "close", "rename", "renameat", "renameat2", "unlink", "unlinkat",
    "mkdir", "copy_file_range",
))  # fmt: skip
# Something is handed to whoever is at the other end of a pipe or a socket.
SENDS = frozenset(("write", "writev", "sendto", "sendmsg", "sendfile"))
# Calls on a socket of which the kind could not be looked up before it was closed. Python's multiprocessing uses plain
# reads and recvmsg on its own (unix) sockets, never these.
ON_CONNECTIONS = frozenset(("recvfrom", "poll", "ppoll", "connect", "select", "epoll_wait", "sendto"))
# A loader worker without work polls the pipe of its index queue (multiprocessing.Queue.get), or reads it.
AWAITS_WORK = frozenset(("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "read"))
AWAITED_WORK = frozenset(("pipe", ""))
# A server's wait for whoever may come.
AWAITS_CONNECTIONS = frozenset(("accept", "accept4", "epoll_wait"))
# The last is ``select`` and its like without descriptors.
SLEEPS = frozenset(("nanosleep", "clock_nanosleep", "select (sleep)"))
# Locks of files, and of System V.
FILE_LOCKS = frozenset(("flock", "fcntl", "semtimedop"))
# An event loop sits in one of these (asyncio, uvloop, trio).
EVENT_LOOPS = frozenset(("epoll_wait", "epoll_pwait", "epoll_pwait2"))
# It waits for any of several descriptors, or of one.
ON_SETS = EVENT_LOOPS | {"poll", "ppoll", "select", "pselect6"}
AWAITS_PROCESSES = frozenset(("wait4", "waitid"))
# A process starts another one, and waits in an uninterruptible sleep until that runs its program (vfork(2)).
STARTS_PROCESSES = frozenset(("vfork", "clone", "clone3", "fork"))
RUNS_PROCESSES = AWAITS_PROCESSES | STARTS_PROCESSES
# A thread waits for somebody to send or signal something.
AWAITS_OTHERS = AWAITS_PROCESSES | {
    "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "read", "recvfrom", "recvmsg",
    "accept", "accept4",
}  # fmt: skip
# A thread waits for another one, as a rule of its own process.
FOR_THREADS = frozenset(("futex", "futex_waitv"))
# All that a thread of an OpenMP or similar pool is ever seen in.
OF_POOLS = frozenset(("futex", "sched_yield", "madvise", "munmap", "mmap", "fault"))
# Kinds of targets (``perfdoctor.recording.schema.ThreadSample``) whose other end is somebody else.
CHANNELS = ("pipe", "socket", "anon")
NETWORK_TARGETS = ("socket:tcp", "socket:udp")
# Files in memory that processes share, as torch hands tensors over in.
SHARED_MEMORY = "file:/dev/shm/"
# Files of GPU drivers. What a thread asks them for in a call is to allocate, free or map memory: NVIDIA's waits and
# launches take none. Threads of AMD's wait in a call on theirs (hsaKmtWaitOnMultipleEvents).
DRIVER_FILES = ("file:/dev/nvidia", "file:/dev/kfd", "file:/dev/dri")
WAITED_ON = "file:/dev/kfd"
# In which a thread sleeps that waits for a device without spinning (cudaDeviceScheduleBlockingSync), or that looks
# now and then whether it is through (c10d's blocking waits).
BLOCKING_WAITS = SLEEPS | {"futex", "poll", "ppoll", "ioctl", "read", "sched_yield"}
