"""A function that the main thread is to call: for `perfdoctor attach PID --trace`, beside ``brief_trace.py``.

The text of this file is run in the job, too.
"""

from __future__ import annotations

import _thread
import ctypes
import sys
import time
from collections.abc import Callable

_ASK_S = 0.02  # whether the call was made


class MainThreadCall:
    """A function that the main thread calls as soon as it runs Python code.

    The interpreter is made to run a line of Python: a callback of ctypes would have to outlive its own return.

    Args:
        work: what to call.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        # Whoever takes it, calls it or makes sure that nobody does.
        self._work = [work]
        self._outstanding = False
        self._over = _thread.allocate_lock()
        self._over.acquire()
        find = "__import__('ctypes')"
        self._line = f"{find}.cast({id(self)}, {find}.py_object).value.run()".encode()

    def place(self, patience_s: float) -> bool:
        """Hands it to the interpreter, and waits.

        Args:
            patience_s: how long; what has not begun by then will not begin any more.

        Returns:
            Whether it was called.
        """
        interpreter = ctypes.PyDLL(None)
        place = interpreter.Py_AddPendingCall
        place.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        until = time.monotonic() + patience_s
        line = ctypes.cast(interpreter.PyRun_SimpleString, ctypes.c_void_p)
        self._outstanding = True
        while place(line, self._line) != 0:  # the queue is full
            if time.monotonic() > until:
                self._outstanding = False
                return False
            time.sleep(_ASK_S)
        if self._over.acquire(timeout=patience_s):
            return True
        try:
            self._work.pop()
        except IndexError:  # it has begun meanwhile
            self._over.acquire()
            return True
        return False

    def run(self) -> None:
        """Called in the main thread."""
        try:
            for work in [self._work.pop()] if self._work else []:
                work()
        except KeyboardInterrupt:  # somebody wants to interrupt the job, not us
            _thread.interrupt_main()
        except BaseException as error:  # noqa: BLE001 - nothing of ours may appear in the job
            self.error = error
        self._outstanding = False
        self._over.release()

    def wait(self) -> None:
        """Waits until the interpreter has let go of it: its memory must not be freed before."""
        while self._outstanding and not sys.is_finalizing():
            time.sleep(0.2)
