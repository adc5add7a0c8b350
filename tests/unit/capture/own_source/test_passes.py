"""What a loop of the job's own source does once for all rounds of a loop in it."""

from textwrap import dedent

import pytest

from perfdoctor.capture.own_source.passes import find_once
from perfdoctor.results.edits import parse


def found(source: str) -> list[tuple[int, int]]:
    """Lines that run once for all rounds of a loop, each with that loop's first line."""
    return [(one.line, one.loop_line) for one in find_once("job.py", parse(dedent(source)))]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("for epoch in range(9):\n    data.order()\n    for batch in data:\n        train(batch)", [(2, 3)]),
        ("while True:\n    rows = sort(rows)\n    for at in range(9):\n        train(rows[at])", [(2, 3)]),
        ("while True:\n    if hard:\n        data.order()\n    for x in data:\n        train(x)", [(3, 4)]),
        ("for _ in range(9):\n    for x in data:\n        train(x)\n    data.order()", [(4, 2)]),
        (
            "while True:\n    order()\n    for x in a:\n        pass\n    for x in b:\n        pass",
            [(2, 3), (2, 5)],
        ),
        # What a function makes at once for the inner loop, and what a generator makes in its rounds.
        ("def cut(rows):\n    return [rows]\nwhile True:\n    for x in cut(data):\n        train(x)", [(1, 4)]),
        ("def cut(rows):\n    return [rows]\ncut(a)\nwhile True:\n    for x in cut(data):\n        train(x)", []),
        ("def cut(rows):\n    yield rows\nwhile True:\n    for x in cut(data):\n        train(x)", []),
        # What the round gives is needed: the next could be read ahead.
        ("for file in files:\n    rows = load(file)\n    for row in rows:\n        train(row)", []),
        (
            "for file in files:\n    name = of(file)\n    rows = load(name)\n    for x in rows:\n        pass",
            [],
        ),
        ("while True:\n    at += 1\n    rows = load(at)\n    for row in rows:\n        train(row)", []),
        ("while True:\n    file = next(files)\n    rows = load(file)\n    for x in rows:\n        train(x)", []),
        # In each round of the loop itself.
        ("for epoch in range(9):\n    for batch in data:\n        batch = flip(batch)\n        train(batch)", []),
        ("for step in range(9):\n    batch = draw()\n    train(batch)", []),
    ],
)
def test_what_runs_once_for_all_rounds_of_a_loop(source: str, lines: list[tuple[int, int]]) -> None:
    assert found(source) == lines
