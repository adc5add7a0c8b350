"""A job's surroundings on which its speed depends: environment variables, memory allocators, file systems.

File systems are called as the kernel names them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from perfdoctor.knowledge.launchers import LAUNCHERS

# Every launch waits until its kernel has ended (CUDA programming guide).
LAUNCH_BLOCKING = "CUDA_LAUNCH_BLOCKING"
# Has ranks agree about each collective before they run it.
CHECKS_COLLECTIVES = "TORCH_DISTRIBUTED_DEBUG"
# For debugging, and slow: each with the values with which it is; none where any is that switches it on.
DEBUGGING: dict[str, tuple[str, ...]] = {
    CHECKS_COLLECTIVES: ("detail",),  # INFO only logs
    "PYTHONDEVMODE": (),
    "PYTHONTRACEMALLOC": (),
    "PYTHONMALLOC": ("debug", "malloc_debug", "pymalloc_debug"),
    "PYTORCH_JIT_LOG_LEVEL": (),
}
# Either turns torch.compile off.
NO_COMPILING = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
# Each keeps the arithmetic from instructions that the CPU may have, but with these values: ATen's own kernels, oneDNN's
# under its two names, and MKL's (PyTorch's, oneDNN's and MKL's manuals).
REPRODUCIBLE, COMPATIBLE, AUTO = "MKL_CBWR", "COMPATIBLE", "AUTO"
LESS_INSTRUCTIONS = {
    "ATEN_CPU_CAPABILITY": ("avx2", "avx512", "amx", "sve256"),
    "ONEDNN_MAX_CPU_ISA": ("default", "all"),
    "DNNL_MAX_CPU_ISA": ("default", "all"),
    "MKL_ENABLE_INSTRUCTIONS": ("avx512", "avx512_e4"),
    # the same results on all CPUs: of these values, AUTO gives the same from run to run on one of them
    REPRODUCIBLE: ("auto", "auto,strict", "off", "avx2", "avx2,strict", "avx512", "avx512,strict", "avx512_e1"),
}
# Of their values those that leave vectors of 128 bits only.
FEWEST_INSTRUCTIONS = frozenset(("default", "sse41", "sse4_2", "sse2", "compatible"))
# Threads of OpenMP's pool, and so of the CPU's arithmetic.
POOL_THREADS = "OMP_NUM_THREADS"
# The same of other libraries for the CPU's arithmetic (MKL and OpenBLAS prefer their own).
POOL_THREADS_TOO = ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Whether threads of that pool that have nothing to do spin or sleep (OpenMP 5.0, 6.7).
POOL_WAITING = "OMP_WAIT_POLICY"
# Each binds threads of a pool to cores, the main thread with them, and those of every rank to the same (OpenMP 5.0,
# 6.4; the manuals of libgomp and of Intel's OpenMP).
BINDS_THREADS = ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
BINDS_NOTHING = ("none", "disabled")
# Of memory, on x86-64 and most ARM; where it is larger, what is counted in pages is told as less than it is.
PAGE_BYTES = 4096
# glibc then gives no memory back to the kernel when it is freed, and takes large pieces from what it kept (mallopt(3)).
KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(64 * 2**20)}
# Pages of 2 MiB instead of 4 KiB: for tensors on the CPU (PyTorch's allocator), and for the rest (glibc from 2.35 on).
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# Experiment trackers that would send a trial's runs to a server: how each is made to write files (their manuals).
TRACKERS_OFFLINE = {"WANDB_MODE": "offline", "NEPTUNE_MODE": "offline"}
# And with which values they send nothing either: a job that runs so does less than it would offline.
SENDS_NOTHING = frozenset(("offline", "disabled", "dryrun", "debug"))

# Options of PyTorch's allocator; the second is the older name, still read.
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# In them, without blanks and in lower case: segments grow, and pieces of other sizes fit.
GROWING_SEGMENTS = "expandable_segments:true"
# Each tensor costs a cudaMalloc and a cudaFree.
NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"
# "0" forbids TF32 whatever the code allows.
TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
# Set where processes share a GPU through MPS, and so run on it at the same time.
MPS_PIPE = "CUDA_MPS_PIPE_DIRECTORY"

# Each takes a fast path away from NCCL.
NCCL_DETOURS = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE")
# NCCL picks both for each size and topology; whoever sets them does so for all of them.
NCCL_CHOICES = ("NCCL_ALGO", "NCCL_PROTO")
# The network interface that NCCL or gloo talks through; the loopback reaches no other host.
INTERFACE = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
LOOPBACK = "lo"
# At this level every call is logged.
NCCL_LOG, EVERY_CALL = "NCCL_DEBUG", "TRACE"
# What launchers like torchrun set for each rank: how many there are, and how many of them on its host.
RANKS, RANKS_OF_HOST = "WORLD_SIZE", "LOCAL_WORLD_SIZE"
# How the names begin of what launchers set anew for each rank and run: where a process stands, not how fast it is.
PLACES = (
    *("TORCHELASTIC_", "ROLE_", "GROUP_", "RAY_JOB_ID"),
    *(name for one in LAUNCHERS for name in (one.rank, one.local_rank, one.node, *one.run) if name),
)
# Which of its job's ranks a process is, as launchers tell it.
RANK_VARIABLES = tuple(name for one in LAUNCHERS for name in (one.rank, one.local_rank, one.node) if name)

# Files that lie in memory: no storage is faster.
IN_MEMORY = frozenset(("tmpfs", "ramfs"))


# What programs take by LD_PRELOAD, with the names that distributions give the files.
ALLOCATORS = {
    "jemalloc": ("libjemalloc.so*",),
    "tcmalloc": ("libtcmalloc_minimal.so*", "libtcmalloc.so*"),
}
# Where libraries lie: Debian's folders for each architecture first, then those of other distributions.
SYSTEM_FOLDERS = (
    *(Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib/aarch64-linux-gnu")),
    *(Path("/usr/lib64"), Path("/usr/lib"), Path("/usr/local/lib")),
)


def switched_on(value: str | None) -> bool:
    """Whether a variable's value means yes; it is None where it is not set."""
    return (value or "").strip().lower() not in ("", "0", "false", "no", "off")


def debugging(variable: Callable[[str], str | None]) -> Iterator[str]:
    """The variables of ``DEBUGGING`` that slow a job down as they are.

    Args:
        variable: gives the value of one by its name; nothing where it is not set.
    """
    for name, slow in DEBUGGING.items():
        value = variable(name)
        if switched_on(value) and (not slow or (value or "").strip().lower() in slow):
            yield name


def forbidding_instructions(variable: Callable[[str], str | None]) -> dict[str, str]:
    """The variables of ``LESS_INSTRUCTIONS`` that keep a job's arithmetic from something, each with its value.

    Args:
        variable: gives the value of one by its name; nothing where it is not set.
    """
    values = {name: variable(name) or "" for name in LESS_INSTRUCTIONS}
    return {name: value for name, value in values.items() if value.lower() not in ("", *LESS_INSTRUCTIONS[name])}
