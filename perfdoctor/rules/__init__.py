"""Rules: pure functions from facts to a finding, or nothing. One per cause, grouped by what they look at.

Other packages add rules of their own through the entry point group ``perfdoctor.rules``; each entry point
names a function that takes ``perfdoctor.rules.case.Facts`` and returns a ``perfdoctor.diagnosis.Finding`` or None.
"""

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Finding, NotExamined
from perfdoctor.rules.case import Facts
from perfdoctor.rules.communication import COMMUNICATION_RULES
from perfdoctor.rules.cores import CORE_RULES
from perfdoctor.rules.gpu import GPU_RULES
from perfdoctor.rules.gpu_state import DEVICE_RULES
from perfdoctor.rules.input import INPUT_RULES
from perfdoctor.rules.interpreter import INTERPRETER_RULES
from perfdoctor.rules.launching import LAUNCH_RULES
from perfdoctor.rules.remote import REMOTE_RULES
from perfdoctor.rules.saving import SAVING_RULES
from perfdoctor.rules.storage import STORAGE_RULES

Rule = Callable[[Facts], Finding | None]

GROUP = "perfdoctor.rules"

RULES: tuple[Rule, ...] = (
    *INPUT_RULES,
    *INTERPRETER_RULES,
    *LAUNCH_RULES,
    *CORE_RULES,
    *STORAGE_RULES,
    *REMOTE_RULES,
    *SAVING_RULES,
    *GPU_RULES,
    *DEVICE_RULES,
    *COMMUNICATION_RULES,
)


def find(facts: Facts) -> tuple[list[Finding], list[NotExamined]]:
    """Applies all rules, the users' included.

    Returns:
        The findings, largest share first, and a sentence for each user's rule that is broken.
    """
    findings = [found for rule in RULES if (found := rule(facts)) is not None]
    own, broken = _apply_user_rules(facts, _find_user_rules())
    return sorted([*findings, *own], key=lambda found: -found.share), broken


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


def _apply_user_rules(facts: Facts, points: Iterable[EntryPoint]) -> tuple[list[Finding], list[NotExamined]]:
    findings: list[Finding] = []
    broken: list[NotExamined] = []
    for point in points:
        try:
            found = point.load()(facts)
            _check(found)
        except Exception as error:  # noqa: BLE001 - a stranger's code may raise anything and must not cost the diagnosis
            broken.append(_not_examined(point, error))
        else:
            if found is not None:
                findings.append(found)
    return findings, broken


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
    text = " ".join(str(error).split())[:200]
    return NotExamined(
        f"rule {point.name}",
        f"The rule {point.name} ({point.value}) failed: {type(error).__name__}{f': {text}' if text else ''}.",
        "Repair the package that provides it, or uninstall it.",
    )


__all__ = ["GROUP", "RULES", "Rule", "find"]
