"""Thousands of calls in other processes: each call costs its own result at most."""

from __future__ import annotations

from perfdoctor.cluster.fan_out import ProcessPool, fan_out
from tests.processes.fanning import double


def test_what_fails_or_kills_its_process_is_named_and_the_rest_is_done() -> None:
    done = {one.item: one for one in fan_out(double, range(12), ProcessPool(2))}
    assert sorted(done) == list(range(12))
    assert {item: one.result for item, one in done.items() if not one.why} == {
        number: 2 * number for number in range(12) if number not in (3, 4, 5)
    }
    assert done[3].why == "3 is damaged."
    assert done[4].why == "KeyError: 'four'"
    assert "was killed" in done[5].why
