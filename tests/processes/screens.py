"""A program on a real pseudo-terminal, and what stands on its screen."""

import signal
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pexpect
import pyte

from tests.processes.attaching import ENVIRONMENT, PERFDOCTOR


class Screen:
    """What a person would see."""

    def __init__(self, program: "pexpect.spawn[bytes]", columns: int, lines: int) -> None:
        self.program = program
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._written = b""

    @property
    def lines(self) -> list[str]:
        """All lines, without blanks at their ends."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """The same as one text."""
        return "\n".join(self.lines)

    @property
    def written(self) -> str:
        """All that was ever written."""
        return self._written.decode(errors="replace")

    def shows(self, *words: str, seconds: float = 30.0) -> bool:
        """Waits until all of these stand on the screen."""
        end = time.monotonic() + seconds
        while not all(word in self.text for word in words):
            if time.monotonic() > end or not self._read():
                return all(word in self.text for word in words)
        return True

    def press(self, keys: str) -> None:
        """Types."""
        self.program.send(keys)

    def resize(self, columns: int, lines: int) -> None:
        """As if somebody had pulled at the window's corner."""
        self._screen.resize(lines, columns)
        self.program.setwinsize(lines, columns)

    def ended(self, seconds: float = 30.0) -> int:
        """Waits until the program has ended; returns its exit status."""
        end = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < end, self.text
        self.program.wait()
        status: int | None = self.program.exitstatus
        assert status is not None, f"it was killed by signal {self.program.signalstatus}"
        return status

    def close(self) -> None:
        """As if somebody had closed the window."""
        self.program.ptyproc.fileobj.close()
        self.program.ptyproc.closed = self.program.closed = True

    def settings(self) -> list[object]:
        """How the terminal is set."""
        return list(termios.tcgetattr(self.program.child_fd))

    def _read(self) -> bool:
        """Reads what has come; false if the program has ended."""
        try:
            piece = self.program.read_nonblocking(1 << 16, timeout=0.1)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self._written += piece
        self._stream.feed(piece)
        return True


@contextmanager
def on_terminal(*arguments: object, columns: int = 110, lines: int = 40) -> Iterator[Screen]:
    """perfdoctor on a terminal of its own, in front, as a shell starts it."""
    command, *words = [*PERFDOCTOR, *map(str, arguments)]
    program = pexpect.spawn(
        command, words, dimensions=(lines, columns), env={**ENVIRONMENT, "TERM": "xterm-256color"}, timeout=None
    )
    try:
        yield Screen(program, columns, lines)
    finally:
        if program.closed:
            program.kill(signal.SIGKILL)
            program.ptyproc.wait()
        else:
            program.close(force=True)
