"""Advice about what the job's own source does again, or for nothing: in its own words, in the place of vaguer ones."""

from dataclasses import replace

import pytest

from perfdoctor.diagnosis import advise
from perfdoctor.metrics.own_detours import CostlyDetour, Piece
from perfdoctor.rules.case import Case
from perfdoctor.rules.detours import without_detours
from tests.builders.cases import changes, finding, titles

LINE = "train.py:18 Bank.push"


def detour(way: str, *pieces: Piece, share: float = 0.2, cause: str = "cpu.python_overhead") -> CostlyDetour:
    return CostlyDetour(way, LINE, frozenset([LINE]), pieces or (Piece("self.keys", "new", "[at]"),), share, cause)


def test_what_joins_all_that_it_keeps_is_not_to_be_done_more_rarely() -> None:
    found = finding("cpu.python_overhead", afterwards=((LINE, 0.2),), detours=(detour("joined_cut"),))
    told = titles(found).index(f"Write what is new into self.keys at {LINE}, in place")
    assert not any("more rarely" in title for title in titles(found))
    assert "self.keys[at] = new" in changes(found)
    assert found.fixes[told].predicted_speedup == pytest.approx(1 / 0.78)
    without = finding("cpu.python_overhead", afterwards=((LINE, 0.2),))
    assert f"Do what {LINE} does more rarely" in titles(without)


def test_it_is_told_with_the_cause_that_most_of_it_is_in() -> None:
    both = {"afterwards": ((LINE, 0.2),), "detours": (detour("joined_cut", cause="cpu.model_compute"),)}
    assert not any("in place" in title for title in titles(finding("cpu.python_overhead", **both)))  # type: ignore[arg-type]
    assert "in place" in titles(finding("cpu.model_compute", **both))[0]  # type: ignore[arg-type]


def test_advice_about_other_lines_stays() -> None:
    found = finding("cpu.python_overhead", afterwards=(("train.py:90 auc", 0.2),), detours=(detour("joined_cut"),))
    assert "Do what train.py:90 auc does more rarely" in titles(found)


def test_of_a_layer_the_backward_pass_goes_as_well_but_no_more_than_that() -> None:
    late = detour("indexed_late", Piece("self.head", "x[:, -1]", ""), share=0.1, cause="cpu.model_compute")
    large = finding("cpu.model_compute", share=0.9, detours=(late,), backward=0.5)
    small = finding("cpu.model_compute", share=0.9, detours=(late,), backward=0.05)
    assert large.fixes[0].speedup_range == pytest.approx((1 / 0.95, 1 / 0.7))
    assert small.fixes[0].speedup_range == pytest.approx((1 / 0.95, 1 / 0.85))


def test_loops_of_functions_that_need_not_be_called_again_need_not_be_mended() -> None:
    again = detour("unchanged", Piece("table(n)", "n", ""))
    again = replace(again, lines=frozenset(["train.py:5 table"]))
    for loop, told in (("train.py:4 table", False), ("train.py:30 main", True), (LINE, True)):
        fixes = [advise("interpreter.without_loop", line=loop, share=0.2, computes=0.0)]
        kept = [*without_detours(fixes, Case({}, (), {}, detours=(again,)), "cpu.model_compute")]
        assert (kept == fixes) is told
