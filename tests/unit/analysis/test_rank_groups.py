"""Jobs of many ranks: who is alike, who matters, where the late ones are, and that it takes no longer than it must."""

from __future__ import annotations

import pytest

from perfdoctor.analysis.from_traces import diagnose_ranks
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.reports import html
from perfdoctor.reports.outputs import console_text
from tests.builders.many_ranks import PER_HOST, Late, always, host, make_ranks, nobody, position, wandering

RANKS = 64


def diagnosis_of(late: Late, ranks: int = RANKS) -> Diagnosis:
    return diagnose_ranks(make_ranks(ranks, late))


def places(diagnosis: Diagnosis) -> tuple[int | None, str, int | None]:
    crowd = diagnosis.crowd
    assert crowd is not None
    return diagnosis.verdict.straggler_rank, crowd.late_host, crowd.late_position


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        (always(11), (11, "", None)),
        (host(2), (None, "node0002", None)),
        (position(5), (None, "", 5)),
        (wandering(RANKS), (None, "", None)),
        (nobody, (None, "", None)),
    ],
    ids=["rank", "host", "position", "wandering", "nobody"],
)
def test_the_place_of_late_ranks_is_named(late: Late, expected: tuple[int | None, str, int | None]) -> None:
    assert places(diagnosis_of(late)) == expected


def test_ranks_that_spend_their_time_alike_are_one_group() -> None:
    crowd = diagnosis_of(position(5)).crowd
    assert crowd is not None
    [most, late] = crowd.groups
    assert late.ranks == tuple(range(5, RANKS, PER_HOST))
    assert sorted((*most.ranks, *late.ranks)) == list(range(RANKS))
    assert late.waits < 0.05 < most.waits


def test_the_ranks_that_others_wait_for_come_first() -> None:
    crowd = diagnosis_of(always(11)).crowd
    assert crowd is not None
    assert crowd.matter[0][0] == 11
    assert crowd.matter[0][1] == pytest.approx(0.26, abs=0.02)
    assert [row.host for row in crowd.rows] == [f"node{number:04d}" for number in range(RANKS // PER_HOST)]


def test_few_ranks_are_looked_at_one_by_one() -> None:
    assert diagnosis_of(always(3), 16).crowd is None


def test_reports_of_many_ranks_show_groups_places_and_those_that_matter(capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    diagnosis = diagnosis_of(host(2))
    text = " ".join(console_text(diagnosis, sys.stdout).split())
    assert "The ranks of host node0002 hold the others back" in text
    assert "56 ranks like rank 0, which wait" in text
    assert text.count("(rank") <= 10
    page = html.render(diagnosis)
    assert page.count('<tr><th scope="row">node000') == RANKS // PER_HOST
    assert "8 ranks like rank 16" in page
    assert len(page) < 100_000
