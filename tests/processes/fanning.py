"""What other processes are asked to do for the tests of fanning out."""

import os
import signal
from pathlib import Path

from perfdoctor.errors import PerfDoctorError


def double(number: int) -> int:
    """Fails for 3 as what perfdoctor knows of, and for 4 as what it does not; 5 kills the process."""
    if number == 3:
        raise PerfDoctorError("3 is damaged.", hint="Mend it.")
    if number == 4:
        raise KeyError("four")
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def kill_once(order: tuple[str, int]) -> int:
    """Kills the process that is first to be asked for 7, and only that one."""
    folder, number = order
    if number == 7:
        try:
            Path(folder, "killed").touch(exist_ok=False)
        except FileExistsError:
            return 2 * number
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number
