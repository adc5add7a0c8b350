"""A progress bar on a terminal; nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(doing: str, total: float) -> Iterator[Callable[..., None]]:
    """Shows on standard error how far something is, and how much time is left.

    Args:
        doing: what is done, before the bar.
        total: at which the bar is full.

    Yields:
        What takes ``completed``, and if it is to change ``description``.
    """
    if not sys.stderr.isatty():
        yield lambda **_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=2) as bar:
        task = bar.add_task(doing, total=total)

        def show(**changed: float | str) -> None:
            bar.update(task, **changed)  # type: ignore[arg-type]

        yield show
