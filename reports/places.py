"""Lines of the job's code in a report: with their whole path where a file is first named, by its name after that."""

import re
from collections import defaultdict
from collections.abc import Iterable

_PLACE = re.compile(r"(?<![\w./~])(/(?:[^\s/:'\"]+/)+([^\s/:'\"]+)):(?=\d)")


class Places:
    """Shortens paths in the texts of one report, which must come in the order in which they are read.

    Args:
        texts: all of them: a name that two of their files share stays behind its path.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        paths: dict[str, set[str]] = defaultdict(set)
        for text in texts:
            for path, name in _PLACE.findall(text):
                paths[name].add(path)
        self._shared = {name for name, found in paths.items() if len(found) > 1}
        self._told: set[str] = set()

    def shorten(self, text: str) -> str:
        """The text, with files that were named before by their name."""
        return _PLACE.sub(self._name, text)

    def _name(self, match: re.Match[str]) -> str:
        path, name = match[1], match[2]
        if path in self._told and name not in self._shared:
            return f"{name}:"
        self._told.add(path)
        return match[0]
