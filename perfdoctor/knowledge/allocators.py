"""Memory allocators that may be installed on a machine and can take the place of the C library's: names and places."""

from pathlib import Path

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
