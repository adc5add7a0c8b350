"""Rules of other packages, which come in through the entry point group ``perfdoctor.rules``.

Each entry point names a function that takes a ``perfdoctor.rules.case.Case`` and returns a
``perfdoctor.diagnosis.Finding`` or None.
"""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Finding, NotExamined
from perfdoctor.messages import say
from perfdoctor.rules.case import Case

GROUP = "perfdoctor.rules"


def find_of_users(case: Case) -> tuple[list[Finding], list[NotExamined]]:
    """What users' rules find, and which of them are broken."""
    findings: list[Finding] = []
    broken: list[NotExamined] = []
    for point in _find_user_rules():
        try:
            found = point.load()(case)
            _check(found)
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything and must not cost the diagnosis
            broken.append(_not_examined(point, error))
        else:
            if found is not None:
                findings.append(found)
    return findings, broken


def _find_user_rules() -> Iterable[EntryPoint]:
    """Mostly none, and to learn that from importlib takes as long as all else about a small trace."""
    return entry_points(group=GROUP) if any(map(_may_have_rules, dict.fromkeys(sys.path))) else ()


def _may_have_rules(folder: str) -> bool:
    """Whether a package installed in a folder of the module search path has the group, as far as files tell."""
    try:
        packages = [name for name in os.listdir(folder or ".") if name.lower().endswith("-info")]
    except NotADirectoryError:
        return True  # an archive: only importlib looks into it
    except OSError:
        return False
    for package in packages:
        with suppress(OSError):
            # Python's file objects take longer to make than these small files to read.
            file = os.open(os.path.join(folder, package, "entry_points.txt"), os.O_RDONLY)
            try:
                if GROUP.encode() in os.read(file, os.fstat(file).st_size):
                    return True
            finally:
                os.close(file)
    return False


def _check(found: object) -> None:
    """Raises if what a user's rule returned cannot be reported."""
    if found is None:
        return
    if not isinstance(found, Finding):
        raise TypeError(f"it returned {type(found).__name__}, not a Finding or None")
    if found.cause not in CAUSES:
        raise ValueError(f"it named an unknown cause, {found.cause!r}")
    if not 0 <= found.share <= 1:
        raise ValueError(f"its share, {found.share}, is not between 0 and 1")


def _not_examined(point: EntryPoint, error: Exception) -> NotExamined:
    failed = say(
        "coverage.rule_failed",
        name=point.name,
        value=point.value,
        error=type(error).__name__,
        text=" ".join(str(error).split())[:200],
    )
    return NotExamined(f"rule {point.name}", failed, say("coverage.repair_rule"))
