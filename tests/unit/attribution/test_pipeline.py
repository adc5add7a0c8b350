"""What a wait for suppliers ends with: its largest cause, and what goes along with that; nothing is lost on the way."""

import pytest

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.pipeline import going_with_the_largest
from perfdoctor.attribution.share import Share
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.processes import Process

READ, DECODE = "io.storage_read", "cpu.input_preprocessing"


def test_a_wait_ends_with_its_largest_cause() -> None:
    """A worker that reads for 90 ms and decodes for 10, a trainer that computes for 50."""
    first, going = going_with_the_largest({READ: 0.44, DECODE: 0.06}, {READ: 0.9, DECODE: 0.1}, used=0.3)
    assert first == READ
    # Reads that cost nothing end the wait of 0.5, decoding that costs nothing 0.1 of it.
    assert going == {DECODE: pytest.approx(0.8)}


def test_causes_of_equal_weight_share_a_wait() -> None:
    _, going = going_with_the_largest({READ: 0.25, DECODE: 0.25}, {READ: 0.5, DECODE: 0.5}, used=0.3)
    assert going == {DECODE: pytest.approx(0.0)}


def test_what_would_be_waited_for_nevertheless_is_kept() -> None:
    """The trainer computes for a tenth of the time, and decoding alone takes three."""
    _, going = going_with_the_largest({READ: 0.6, DECODE: 0.3}, {READ: 0.7, DECODE: 0.3}, used=0.1)
    assert going[DECODE] == pytest.approx((1 - 0.2 / 0.3) * (1 - 0.3 / 0.7))
    # And so it is where the job's work on all cores takes longer than a step without waits.
    _, going = going_with_the_largest({READ: 0.44, DECODE: 0.06}, {READ: 0.9, DECODE: 0.1}, used=0.6)
    assert going == {DECODE: 0.0}


def test_workers_that_idle_bound_nothing() -> None:
    """Whichever cause is relieved, the wait may end: none of them is the larger one's."""
    _, going = going_with_the_largest({READ: 0.12, DECODE: 0.08}, {READ: 0.2, DECODE: 0.1}, used=0.3)
    assert going == {DECODE: pytest.approx(0.0)}


def test_what_is_recharged_is_neither_lost_nor_made_up() -> None:
    account = Account(Process(1, 1, 0, None, "trainer", 0, None))
    account.add(0, 1.0, CodeLocation("data"), [Share(READ, 0.75, awaited=True), Share(DECODE, 0.25, awaited=True)])
    account.add(0, 1.0, CodeLocation("data"), [Share(DECODE, 1.0)])
    account = account.recharged({DECODE: 0.5}, READ)
    assert account.causes() == pytest.approx({READ: 0.875, DECODE: 1.125})
