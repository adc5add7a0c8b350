"""What ``diagnose()`` says where it cannot do what it is asked for."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import perfdoctor.api as api


def test_files_that_nobody_will_write_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_closed", api._DETACHED)
    monkeypatch.setattr(api, "_asked", [None, "first.json"])
    api.diagnose(json="first.json")
    with pytest.warns(RuntimeWarning, match=r"second\.json and kept\.perfdoctor will not be written"):
        api.diagnose(json="second.json", recording="kept.perfdoctor")
    api.diagnose(json="second.json", recording="kept.perfdoctor")


def test_who_is_not_watched_at_all_was_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_closed", "perfdoctor does not watch: nothing has imported torch.")
    api.diagnose(json="other.json")


def test_a_generator_is_one_step_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    loop = SimpleNamespace(enter=lambda: seen.append("enter"), leave=lambda: seen.append("leave"))
    monkeypatch.setattr(api, "_loop", loop)

    @api.diagnose()
    def losses() -> Iterator[int]:
        seen.append("work")
        yield 1

    assert list(losses()) == [1]
    assert seen == ["enter", "work", "leave"]
