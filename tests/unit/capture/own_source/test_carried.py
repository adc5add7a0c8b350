"""Backward passes that go through all rounds of a loop before, since something carries its graph along."""

from textwrap import dedent, indent

import pytest

from perfdoctor.capture.own_source.carried import find_carried
from perfdoctor.results.edits import parse

STEP = """\
hidden = cell(batch, hidden)
loss = criterion(head(hidden), targets)
loss.backward(retain_graph=True)
"""


def found(body: str) -> list[tuple[int, str]]:
    """By line of a loop's body, from 1, what is carried."""
    source = "for batch, targets in data:\n" + indent(dedent(body), "    ")
    return [(statement.lineno - 1, name) for statement, (name,) in find_carried(parse(source))]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (STEP, [(3, "hidden")]),
        ("outputs, state = model(batch, state)\nloss(outputs).backward(retain_graph=keep)\n", [(2, "state")]),
        (f"hidden = hidden.detach()\n{STEP}", []),
        (f"{STEP}hidden = hidden.data\n", []),
        (f"{STEP}hidden.detach_()\n", []),
        (STEP.replace("retain_graph=True", ""), []),
        (STEP.replace("retain_graph=True", "retain_graph=False"), []),
        # Two losses of one graph, as a generator and a discriminator may have.
        (f"{STEP}other.backward()\n", []),
        ("total += loss(batch)\ntotal.backward(retain_graph=True)\n", [(2, "total")]),
        ("total = total + loss(batch)\ntotal.backward(retain_graph=True)\n", [(2, "total")]),
        ("total += loss.item()\nloss.backward(retain_graph=True)\n", []),
        # Made of what the round gives.
        ("batch = layer(batch)\nloss(batch).backward(retain_graph=True)\n", []),
        ("x = batch\nx = layer(x)\nloss(x).backward(retain_graph=True)\n", []),
        ("hidden = cell(batch)\nloss(hidden).backward(retain_graph=True)\n", []),
    ],
)
def test_what_is_carried_with_its_graph(body: str, told: list[tuple[int, str]]) -> None:
    assert found(body) == told
