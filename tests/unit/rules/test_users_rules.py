"""Users' rules come in through an entry point; a broken one is reported and does not stop the diagnosis."""

import sys
from pathlib import Path

import pytest

from perfdoctor.reports.wording import worded
from perfdoctor.rules import find
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.users_rules import GROUP

CASE = Case({"cpu.model_compute": 1.0}, (Trainer(0, 1, {}, {}, {}, (), 0),), {})

MODULE = """
from perfdoctor.diagnosis import Finding

def good(case):
    return Finding("io.swap", 0.5, "high", 2.0, "mine")

def silent(case):
    return None

def raises(case):
    raise KeyError("no\\nsuch number")

def wrong_type(case):
    return "slow"

def unknown_cause(case):
    return Finding("cpu.moon_phase", 0.5, "high", 2.0, "mine")

def share_of_two(case):
    return Finding("io.swap", 2.0, "high", 2.0, "mine")

def not_a_number(case):
    return Finding("io.swap", float("nan"), "high", 2.0, "mine")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Installs a package with rules, for one test."""

    def installed(*functions: str) -> None:
        (tmp_path / "rules_of_a_user.py").write_text(MODULE)
        info = tmp_path / "rules_of_a_user-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rules-of-a-user\nVersion: 1.0\n")
        lines = [f"{name} = rules_of_a_user:{name}" for name in functions]
        (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
        monkeypatch.syspath_prepend(tmp_path)

    yield installed
    sys.modules.pop("rules_of_a_user", None)


def test_a_users_rule_is_found_and_sorted_in(install) -> None:  # type: ignore[no-untyped-def]
    install("good", "silent")
    found, broken = find(CASE)
    assert [finding.cause for finding in found] == ["cpu.model_compute", "io.swap"]
    assert broken == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("raises", "KeyError: 'no\\nsuch number'."),
        ("wrong_type", "it returned str, not a Finding or None."),
        ("unknown_cause", "it named an unknown cause, 'cpu.moon_phase'."),
        ("share_of_two", "its share, 2.0, is not between 0 and 1."),
        ("not_a_number", "its share, nan, is not between 0 and 1."),
        ("absent", "AttributeError"),
    ],
)
def test_a_broken_rule_is_a_sentence(install, name: str, says: str) -> None:  # type: ignore[no-untyped-def]
    install("good", name)
    found, broken = find(CASE)
    assert [finding.cause for finding in found] == ["cpu.model_compute", "io.swap"]
    assert [missing.probe for missing in broken] == [f"rule {name}"]
    assert says in worded(broken[0].reason)
    assert "\n" not in worded(broken[0].reason)
    assert broken[0].enable
