"""A recording on the clock of another host: all instants are moved, and nothing else."""

import pytest

from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.other_clock import ClockOffset, on_other_clock
from perfdoctor.recording.schema import Event, Sample, WaitSeen
from tests.builders.jobs import START, recorded

AHEAD_NS = 5 * NS_PER_S
SLEEPS = WaitSeen(START + 20, 7, "clock_nanosleep", None, "", "null", START + 90, None)
READS = WaitSeen(START + 30, 7, "read", 3, "", "null", None, None)


def test_instants_are_moved_and_what_has_none_stays() -> None:
    with recorded([SLEEPS, READS]) as here, on_other_clock(here, ClockOffset(AHEAD_NS)) as moved:
        assert moved.rows(WaitSeen) == [
            SLEEPS._replace(time_ns=SLEEPS.time_ns - AHEAD_NS, ends_ns=START + 90 - AHEAD_NS),
            READS._replace(time_ns=READS.time_ns - AHEAD_NS),
        ]


@pytest.mark.parametrize("offset", [ClockOffset(shared=True), ClockOffset(AHEAD_NS), ClockOffset(7, START, 1e-3)])
def test_columns_are_those_of_rows(offset: ClockOffset) -> None:
    samples: list[Sample] = [SLEEPS, READS, Event(START + 10, "kind", "text")]
    with recorded(samples) as here, on_other_clock(here, offset) as moved:
        for kind in (WaitSeen, Event):
            expected = [list(column) for column in zip(*moved.rows(kind), strict=True)]
            assert moved.columns(kind, *kind._fields) == expected
