"""Statements in loops of the job's own source that hand over numbers read out of tensors."""

from textwrap import indent

import pytest

from perfdoctor.capture.own_source.results import find_results
from perfdoctor.results.edits import parse


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("tracker.log(step, loss=loss.item())", [1]),
        ("value = loss.item() / world\nif step % 5 == 0:\n    post(url, {'loss': value})", [3]),
        ("total += loss.item()\nsend(\n    [total],\n)", [2]),
        # It gives something back, is given no numbers, or runs at another time.
        ("state = environment.step(action.item())", []),
        ("losses.append(loss)\nrefill(step)", []),
        ("value = loss.item()", []),
        ("def tell():\n    post(loss.item())", []),
    ],
)
def test_calls_that_are_only_given_numbers_tell_results(body: str, lines: list[int]) -> None:
    source = "while True:\n" + indent(body, "    ")
    assert [one.line - 1 for one in find_results("train.py", parse(source))] == lines


def test_outside_of_loops_none_does() -> None:
    assert not find_results("train.py", parse("log(loss.item())"))
