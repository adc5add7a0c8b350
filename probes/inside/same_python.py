"""How a part of perfdoctor is started in a process of its own, by the Python and with the modules that run here."""

from __future__ import annotations

import sys
from pathlib import Path

import perfdoctor

# The folder of the script, or the current one, may hold files named like modules of the standard library, or a folder
# that would pass for the package.
_START = "import sys; sys.path = [*filter(None, sys.path), sys.argv.pop(1)]; from {} import main; sys.exit(main())"


def command(module: str, *arguments: str) -> list[str]:
    """The command that calls ``main()`` of a module.

    Args:
        module: its full name.
        arguments: what it finds in ``sys.argv``.
    """
    home = str(Path(perfdoctor.__file__).parent.parent)
    return [sys.executable, "-c", _START.format(module), home, *arguments]
