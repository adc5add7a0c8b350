"""Calls of libraries that are slow in one known way, and what kind of advice makes them cheaper."""

from collections.abc import Mapping

# By the kind of advice, as ``input.cheaper`` has it; calls as ``library_calls`` names them, without their classes.
SLOW_CALLS: Mapping[str, frozenset[str]] = {
    # A deque goes through its items to find one by its number (Modules/_collectionsmodule.c, deque_item).
    "drawn": frozenset(("random sample", "random choices", "random choice")),
    # Rows of what is stored by columns, and the other way round: all numbers are gone through (scipy.sparse, csr.h).
    "sparse parts": frozenset(("scipy IndexMixin", "scipy __getitem__")),
    "convolved": frozenset(("scipy convolve", "scipy correlate", "scipy convolve2d", "scipy correlate2d")),
    "interpolated": frozenset(("scipy affine_transform", "scipy map_coordinates", "scipy zoom", "scipy rotate")),
    # An entry of an archive is read and unpacked at each access (numpy.lib.npyio.NpzFile).
    "unpacked": frozenset(("numpy read_array", "numpy NpzFile")),
    # Written in Python; a parser in C comes with it (PyYAML's documentation, libyaml).
    "yaml": frozenset(("yaml safe_load", "yaml load", "yaml full_load", "yaml safe_load_all")),
    "json": frozenset(("json loads", "json load")),
    "copied": frozenset(("copy deepcopy",)),
    "quantiles": frozenset(f"numpy {name}" for name in ("percentile", "quantile", "median", "nanpercentile")),
    # A frame is made from those before it; going back begins with the first one (PIL.GifImagePlugin).
    "frames": frozenset(("PIL seek",)),
    "holidays": frozenset(("pandas holidays",)),
    # A dict of all words is made at each access.
    "vocabulary": frozenset(("transformers vocab", "transformers get_vocab")),
    "row groups": frozenset(("pyarrow read_row_group", "pyarrow read_row_groups", "pyarrow read_table")),
}


def kind_of_call(call: str | None) -> str:
    """The kind of advice for a call, ``"random Random.sample"``; "" where nothing is known of it."""
    package, _, function = (call or "").partition(" ")
    plain = f"{package} {function.rpartition('.')[2]}"
    return next((kind for kind, calls in SLOW_CALLS.items() if plain in calls), "")
