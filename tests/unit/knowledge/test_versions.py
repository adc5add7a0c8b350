"""What a version of PyTorch does not have yet."""

import itertools

import pytest

from perfdoctor.knowledge.versions import FUSED_ON_CPU, compiles, is_older, missing_parts


@pytest.mark.parametrize(
    ("version", "older"),
    [
        ("2.3.1+cu121", True),
        ("2.10.0", False),
        ("2.4.0a0+git1234", False),
        ("1.13", True),
        ("main", False),
        (None, False),
    ],
)
def test_versions_are_compared_by_number(version: str | None, older: bool) -> None:
    """Of a version that nobody knows nothing is missing."""
    assert is_older(version, FUSED_ON_CPU) is older


@pytest.mark.parametrize(
    ("torch", "python", "does"),
    [
        ("2.3.1", "3.11", True),
        ("2.3.1", "3.12", False),
        ("2.5.1", "3.12", True),
        ("2.5.1", "3.13", False),
        ("2.9.1", "3.14", False),
        ("2.10.0", "3.14", True),
        (None, "3.14", True),
        ("2.3.1", None, True),
    ],
)
def test_new_pythons_need_a_new_compiler(torch: str | None, python: str | None, does: bool) -> None:
    assert compiles(torch, python) is does


def test_newer_versions_miss_less() -> None:
    missing = [{part.name for part in missing_parts(version)} for version in ("2.0.1", "2.3.1", "2.5.1", "2.6.0")]
    assert all(newer < older for older, newer in itertools.pairwise(missing))
    assert missing[-1] == set()
    assert missing_parts("") == ()
