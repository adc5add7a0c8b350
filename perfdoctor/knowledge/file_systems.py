"""File systems by what is behind them, as the kernel names them."""

# Files that lie in memory: no storage is faster.
IN_MEMORY = frozenset(("tmpfs", "ramfs"))
