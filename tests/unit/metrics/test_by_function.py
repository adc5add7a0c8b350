"""Lines are summed by function, and what runs below them is summed by the package it belongs to."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.by_function import below, by_function
from perfdoctor.timeline.stacks import Stacks
from tests.builders import jobs

MS = 1_000_000


def test_a_function_is_not_hidden_by_its_many_lines() -> None:
    lines = {"a.py:40 main": 3.0, "a.py:14 Env.obs": 2.0, "a.py:15 Env.obs": 1.0, "a.py:16 Env.obs": 2.5}
    found = by_function(lines)
    assert [line for line, _ in found] == ["a.py:16 Env.obs", "a.py:40 main"]
    assert [part for _, part in found] == pytest.approx([5.5 / 8.5, 3 / 8.5])


def test_comprehensions_count_for_the_function_they_are_in() -> None:
    lines = {"a.py:4 load.<locals>.<listcomp>": 3.0, "a.py:5 load": 1.0, "b.py:5 load": 1.0}
    assert by_function(lines) == (("a.py:4 load", 0.8), ("b.py:5 load", 0.2))


def test_lines_of_the_top_level_stand_for_themselves() -> None:
    assert by_function({"a.py:4 <module>": 2.0, "a.py:5 <module>": 2.0}) == (
        ("a.py:4 <module>", 0.5), ("a.py:5 <module>", 0.5),
    )  # fmt: skip
    assert by_function({}) == ()


def test_what_runs_below_a_line_is_weighed_by_time() -> None:
    own = Frame("/home/me/train.py", "read", 7)
    loading = (own, Frame("/v/lib/python3.11/site-packages/PIL/Image.py", "load", 1))
    seen = jobs.stacks(1, (own,), loading, loading, loading, (), times=5, every_s=0.01)
    under = Stacks.read(seen).below_lines
    assert dict(under["/home/me/train.py:7 read"]) == {"": 10 * MS, "PIL": 30 * MS}
    assert below({"/home/me/train.py:7 read": 2.0, "x.py:1 f": 1.0}, under) == {"PIL": 0.75, "": 0.25}
