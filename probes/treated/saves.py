"""Takes aside what a job under trial saves outside of the folder that it was given: the user's own files stay."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any


class Saves:
    """Sends saves aside.

    Args:
        settings: `root` is the folder in which the job may write, `saves` where other saves go; `changes` is what is
            tried.
        notes: takes where a save would have gone.
    """

    def __init__(self, settings: dict[str, Any], notes: Any) -> None:
        self._root = os.path.join(os.path.realpath(settings["root"]), "")
        self._aside = settings["saves"]
        self._none = bool(settings["changes"].get("no_saves"))
        self._notes = notes

    def install(self, torch: Any) -> None:
        """Wraps torch's save, and its load for what was taken aside."""
        torch.save = self._saving(torch.save)
        torch.load = self._loading(torch.load)

    def _saving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            self._notes.fact("save", **self._notes.place())
            if self._none:
                self._notes.fact("applied", change="no_saves")
                return None
            return original(obj, self._place(f, make=True), *args, **kwargs)

        return save

    def _loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def load(f: Any, *args: Any, **kwargs: Any) -> Any:
            aside = self._place(f, make=False)
            there = isinstance(aside, str) and os.path.exists(aside)
            return original(aside if there else f, *args, **kwargs)

        return load

    def _place(self, file: Any, *, make: bool) -> Any:
        """Where a file goes: below the job's own folder as it is, else to the same path below another one."""
        if not isinstance(file, (str, os.PathLike)):
            return file
        path = os.path.realpath(os.fspath(file))
        if path.startswith((self._root, "/dev/")):
            return file
        aside = os.path.join(self._aside, path.lstrip("/"))
        if make:
            self._notes.fact("aside", path=path)
            os.makedirs(os.path.dirname(aside), exist_ok=True)
        return aside
