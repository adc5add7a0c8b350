"""What a loop of the job's own source does in some of its rounds only."""

from textwrap import indent

import pytest

from perfdoctor.capture.own_source.rounds import find_rounds
from perfdoctor.results.edits import parse


def found(body: str) -> list[tuple[int, int, str]]:
    """First and last line in a loop's body, from 1, and in which rounds they run."""
    source = f"for epoch in range(9):\n  for step, batch in enumerate(loader):\n{indent(body, '    ')}\n"
    rows = list(find_rounds("job.py", parse(source), source.splitlines()))
    assert all(row.loop_line == 2 for row in rows)
    return [(row.line - 2, row.last_line - 2, row.when) for row in rows]


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        (
            "loss.backward()\nif (step + 1) % 4 == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
            [(3, 4, "(step + 1) % 4 == 0")],
        ),
        (
            "loss.backward()\nif step % every != 0:\n    continue\noptimizer.step()\nclear()",
            [(4, 5, "not (step % every != 0)")],
        ),
        (
            "with autocast():\n    if not step % n or step == last:\n        scaler.step(optimizer)",
            [(3, 3, "not step % n or step == last")],
        ),
        ("if scaler is not None:\n    scaler.step(optimizer)", []),
        ("if '%d' % step == text or f'{step}' % 3:\n    save()", []),
        ("def later():\n    if step % 4 == 0:\n        save()", []),
        ("if step % 4:\n    continue", []),
        ("if step % 4 == 0 and api_token == 'hunter2-hunter2':\n    save()", []),
    ],
)
def test_lines_that_a_remainder_chooses_the_rounds_of(body: str, rows: list[tuple[int, int, str]]) -> None:
    assert found(body) == rows


def test_what_stands_in_no_loop_has_no_rounds() -> None:
    source = "def save(step):\n    if step % 4 == 0:\n        write()\n"
    assert not list(find_rounds("job.py", parse(source), source.splitlines()))
