"""Memory allocators that may be installed on a machine: their names, and where they lie."""

from pathlib import Path

# Memory allocators that programs take by LD_PRELOAD, with the names that distributions give their files.
ALLOCATORS = {
    "jemalloc": ("libjemalloc.so*",),
    "tcmalloc": ("libtcmalloc_minimal.so*", "libtcmalloc.so*"),
}
# Where libraries lie: Debian's folders for each architecture first, then those of other distributions.
SYSTEM_FOLDERS = (
    *(Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib/aarch64-linux-gnu")),
    *(Path("/usr/lib64"), Path("/usr/lib"), Path("/usr/local/lib")),
)
