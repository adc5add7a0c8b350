"""What is said of each cause, on a terminal and in docs/causes.md, is the same."""

import pytest

from perfdoctor.__main__ import main
from perfdoctor.causes import CAUSES
from perfdoctor.commands.explain import nearest
from perfdoctor.reports.english.causes import EXPLAINED
from perfdoctor.reports.explained import page, render
from perfdoctor.reports.language import language
from tests.builders.phrases import english_runs
from tests.files import ROOT

PAGE = ROOT / "docs" / "causes.md"


def test_every_cause_is_explained_and_nothing_else() -> None:
    assert list(EXPLAINED) == list(CAUSES)


def test_the_page_is_made_from_the_rows() -> None:
    """Where it is not, `python docs/causes.py` writes it anew."""
    text = PAGE.read_text("utf-8")
    assert page(text) == text


def test_a_page_that_lacks_a_cause_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0 paragraphs about cpu\.input_preprocessing"):
        page("")


@pytest.mark.parametrize("cause", CAUSES)
def test_all_that_is_known_is_printed(cause: str) -> None:
    row, text = EXPLAINED[cause], render(cause, width=100, color=False, encoding="utf-8")
    said = " ".join(text.split())
    assert said.startswith(f"{cause}: {CAUSES[cause].title}")
    for part in (row.means, row.looks_like, row.helps, row.refuted):
        assert part.replace("*", "")[1:] in said
    assert all(part == "" or part.endswith(".") for part in row[1:])


@pytest.mark.parametrize("cause", CAUSES)
def test_it_is_explained_in_chinese(cause: str) -> None:
    with language("zh"):
        text = render(cause, width=100, color=False, encoding="utf-8")
    assert text.startswith(f"{cause}: ")
    assert english_runs(text) == []


def test_what_is_no_bottleneck_says_so_and_what_is_one_says_from_when_on() -> None:
    assert "has no bottleneck" in render("gpu.compute", width=80, color=False)
    assert "from 10% of the time on" in render("io.swap", width=80, color=False)
    assert "gives way" in render("cpu.contention", width=80, color=False)


def test_the_command_prints_one_or_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "io.swap"]) == 0
    assert "Memory is paged in and out." in capsys.readouterr().out
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out
    assert [cause for cause in CAUSES if f" {cause} " not in listed] == []


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("io.swaps", ["io.swap"]),
        ("contention", ["cpu.contention", "gpu.contention"]),
        ("IO.SWAP", ["io.swap"]),
        ("zzz", []),
    ],
)
def test_what_was_meant_is_suggested(word: str, meant: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert nearest(word)[: len(meant) or None] == meant
    assert main(["explain", word]) == 1
    sentence, move = capsys.readouterr().err.splitlines()
    assert sentence == f"perfdoctor: There is no cause {word!r}."
    assert all(cause in move for cause in meant)
    assert "`perfdoctor explain` lists all of them." in move
