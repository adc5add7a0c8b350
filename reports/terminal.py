"""A terminal that a live view is drawn on: keys one by one, the whole screen, and everything as it was afterwards."""

from __future__ import annotations

import os
import select
import termios
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from perfdoctor.errors import PerfDoctorError

if TYPE_CHECKING:
    from rich.text import Text

_TERMINAL = "/dev/tty"
# Terminals that cannot move their cursor (terminfo's "dumb"), or say nothing of themselves.
_DUMB = ("", "dumb", "unknown")
_HOME, _TO_END_OF_LINE, _TO_END = "\x1b[H", "\x1b[K", "\x1b[J"
_LEAVE = b"\x1b[?1049l\x1b[?25h\x1b[0m"  # the usual screen, a cursor, no colours (xterm's control sequences)
# What keys send (xterm's control sequences; Linux's console and tmux send the same or the second of them).
_KEYS = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down",
    b"\x1b[C": "right", b"\x1bOC": "right", b"\x1b[D": "left", b"\x1bOD": "left",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down",
    b"\x1b[H": "home", b"\x1bOH": "home", b"\x1b[1~": "home",
    b"\x1b[F": "end", b"\x1bOF": "end", b"\x1b[4~": "end",
    b"\r": "enter", b"\n": "enter", b"\x7f": "backspace", b"\x08": "backspace", b"\x03": "ctrl-c", b"\x1b": "escape",
}  # fmt: skip
_INPUT, _LOCAL, _CHARACTERS = 0, 3, 6  # in what tcgetattr returns


def require_terminal() -> None:
    """Makes sure that there is a terminal to draw on.

    Raises:
        PerfDoctorError: there is none, or it cannot be drawn on.
    """
    if os.environ.get("TERM", "") in _DUMB:
        raise PerfDoctorError(
            "This terminal cannot be drawn on (its TERM says so).",
            hint="Set TERM, to xterm-256color for instance, or use `perfdoctor attach` without --live.",
        )
    terminal = _opened()
    try:
        in_front = os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
    if not in_front:
        raise PerfDoctorError(
            "A live view in the background cannot be seen.",
            hint="Bring it to the foreground (fg), or use `perfdoctor attach` without --live.",
        )


def _opened() -> int:
    try:
        return os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        raise PerfDoctorError(
            "There is no terminal for a live view.",
            hint="Use `perfdoctor attach` without --live, or `perfdoctor report RECORDING`.",
        ) from None


def settings() -> list[Any] | None:
    """How the terminal is set; None where there is none."""
    try:
        terminal = _opened()
        try:
            return termios.tcgetattr(terminal)
        finally:
            os.close(terminal)
    except (PerfDoctorError, termios.error):
        return None


def restore(kept: list[Any] | None) -> None:
    """Sets the terminal as it was, for whoever drew on it and was killed."""
    if kept is None:
        return
    try:
        terminal = _opened()
    except PerfDoctorError:
        return  # it was closed
    with suppress(OSError, termios.error):  # it may be closed meanwhile
        termios.tcsetattr(terminal, termios.TCSADRAIN, kept)
        os.write(terminal, _LEAVE)
    os.close(terminal)


class Closed(Exception):
    """The terminal was closed."""


class Terminal:
    """The terminal, while it is drawn on.

    Keys that would send signals (Ctrl-C, Ctrl-Z) are keys like others: nobody is stopped while he reads a recording
    that another one waits to write.

    Raises:
        PerfDoctorError: there is none.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self._number = _opened()
        self._before = termios.tcgetattr(self._number)
        self._file = os.fdopen(os.dup(self._number), "w", errors="replace")
        self._drawn = (0, 0, "")
        self._console = Console(file=self._file, force_terminal=True, highlight=False, markup=False, emoji=False)

    def __enter__(self) -> Terminal:
        raw = termios.tcgetattr(self._number)
        raw[_INPUT] &= ~(termios.IXON | termios.ICRNL)
        raw[_LOCAL] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        raw[_CHARACTERS][termios.VMIN], raw[_CHARACTERS][termios.VTIME] = 0, 0
        termios.tcsetattr(self._number, termios.TCSADRAIN, raw)
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError, termios.error):  # of a terminal that was closed there is nothing to restore
            self._console.show_cursor(True)
            self._console.set_alt_screen(False)
            termios.tcsetattr(self._number, termios.TCSADRAIN, self._before)
        with suppress(OSError):
            self._file.close()
        os.close(self._number)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self._number)
        except OSError:
            raise Closed from None
        return columns or 80, lines or 24

    def draw(self, lines: Sequence[Text]) -> None:
        """Fills the screen.

        Raises:
            Closed: the terminal was closed.
        """
        from rich.text import Text

        columns, rows = self.size
        self._console.size = (columns, rows)
        with self._console.capture() as drawn:
            self._console.print(Text("\n").join(lines[:rows]), end="", no_wrap=True, overflow="crop", crop=False)
        screen = _HOME + drawn.get().replace("\n", f"{_TO_END_OF_LINE}\n") + _TO_END_OF_LINE + _TO_END
        if (columns, rows, screen) != self._drawn:
            self._drawn = columns, rows, screen
            try:
                self._file.write(screen)
                self._file.flush()
            except OSError:
                raise Closed from None

    def keys(self, seconds: float, *others: int) -> Iterator[str]:
        """The keys that were pressed; waits so long for the first, or until there is something to read elsewhere.

        Yields:
            Characters, and names of keys: ``up``, ``page down``, ``enter``, ``escape``, ``ctrl-c`` and so on.

        Raises:
            Closed: the terminal was closed.
        """
        ready, _, _ = select.select([self._number, *others], [], [], seconds)
        if self._number in ready:
            try:
                typed = os.read(self._number, 1024)
            except OSError:
                raise Closed from None
            if not typed:
                raise Closed
            yield from named(typed)


def named(typed: bytes) -> Iterator[str]:
    """Keys by what they sent; what no key that is used sends is left out."""
    while typed:
        sequence = next((known for known in sorted(_KEYS, key=len, reverse=True) if typed.startswith(known)), b"")
        if sequence == b"\x1b" and len(typed) > 1 and typed[1:2] in b"[O":
            # A key that means nothing here: up to the letter, or the tilde, with which it ends.
            end = next((i for i in range(2, len(typed)) if 0x40 <= typed[i] <= 0x7E), len(typed) - 1)
            typed = typed[end + 1 :]
        elif sequence:
            yield _KEYS[sequence]
            typed = typed[len(sequence) :]
        else:
            text = typed.decode("utf-8", errors="ignore")[:1]
            if text.isprintable():
                yield text
            typed = typed[len(text.encode()) or 1 :]
