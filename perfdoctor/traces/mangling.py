"""Readable names of kernels whose trace has them as compilers write them (Itanium C++ ABI), as on Windows.

What matters of a name are the words in it: the function's path, and those in its template arguments. Types, numbers
and parameters are left out.
"""

from __future__ import annotations

import re

_PREFIX = "_Z"
# A word's length (behind an L that of a type whose value follows), and what has digits but is no word: values, what
# was named before, and numbers of lambdas.
_PART = re.compile(r"L[a-z]+n?\d+E|[ST][0-9A-Z]*_|E\d*_|(?P<valued>L)?(?P<length>[1-9]\d*)(?=[A-Za-z_])|.", re.DOTALL)
_VALUE = re.compile(r"n?\d+E")
_ANONYMOUS = "_GLOBAL__N_"


def readable(name: str) -> str:
    """The name as people write it, ``path::of::function<words, of, its, arguments>``; others stay as they are."""
    if not name.startswith(_PREFIX):
        return name
    path: list[str] = []
    arguments: list[str] = []
    words, at = path, len(_PREFIX)
    nested = name.startswith("N", at)
    while at < len(name) and (part := _PART.match(name, at)) is not None:
        at = part.end()
        if part["length"] is not None and (words is not path or nested or not path):
            word = name[at : at + int(part["length"])]
            at += len(word)
            if part["valued"] and (value := _VALUE.match(name, at)) is not None:
                at = value.end()
            if not word.startswith(_ANONYMOUS):
                words.append(word)
        elif words is path and path:
            if part[0] == "I":
                words = arguments
            elif not nested or part[0] == "E":
                break  # what follows are the parameters
    if not path:
        return name
    return "::".join(path) + (f"<{', '.join(arguments)}>" if arguments else "")
