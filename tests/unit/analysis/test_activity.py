"""What is drawn of recordings of the corpus agrees with what is said of them."""

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from perfdoctor.analysis.activity import explained, period
from perfdoctor.analysis.from_recording import examine
from perfdoctor.attribution.account import Sampled
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.recording.reader import Recording
from perfdoctor.reports.html import render
from perfdoctor.reports.wording import worded
from perfdoctor.results.activity import TRAINER, WORKER, CodeNode, StepPart
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.steps import Step
from tests.builders.more_ranks import repeat_ranks
from tests.recordings import corpus, packing

# A loader's workers; ranks of which one is late; a trainer that marked its steps.
NAMES = ("slow_preprocessing_workers", "straggler_disk", "ddp_every_microbatch")


@lru_cache
def diagnosed(name: str) -> Diagnosis:
    with TemporaryDirectory() as folder:
        file = Path(folder, "job.perfdoctor")
        packing.unpack(corpus.FOLDER / f"{name}{corpus.SUFFIX}", file)
        with Recording.open(file) as recording:
            return examine(recording)


@pytest.mark.parametrize("name", NAMES)
def test_tracks_of_trainers_sum_to_all_of_their_time_and_agree_with_the_breakdown(name: str) -> None:
    diagnosis = diagnosed(name)
    tracks = [track for track in diagnosis.activity.tracks if track.role == TRAINER]
    assert [track.rank for track in tracks] == [rank["rank"] for rank in diagnosis.ranks]
    for track, rank in zip(tracks, diagnosis.ranks, strict=True):
        for place, seen in enumerate(track.seen):
            assert sum(shares[place] for shares in track.shares.values()) == pytest.approx(float(seen))
        assert len(track.seen) * track.bin_s == pytest.approx(diagnosis.activity.watched_s)
        for line in rank["breakdown"]:
            drawn = sum(track.shares[line["cause"]]) / sum(track.seen)
            assert drawn == pytest.approx(line["share"], abs=0.08)  # bins count alike, however many samples they hold


@pytest.mark.parametrize("name", NAMES)
def test_a_call_holds_what_it_calls(name: str) -> None:
    code = diagnosed(name).activity.code
    assert code

    def check(node: CodeNode) -> None:
        assert 0 < node.share <= 1.0001
        assert sum(called.share for called in node.calls) <= node.share + 1e-9
        for called in node.calls:
            check(called)

    for tree in code:
        assert sum(node.share for node in tree.calls) <= 1.0001
        for node in tree.calls:
            check(node)


def test_workers_have_tracks_and_the_busiest_one_has_a_tree() -> None:
    activity = diagnosed("slow_preprocessing_workers").activity
    workers = [track for track in activity.tracks if track.role == WORKER]
    assert workers
    assert all(sum(shares[0] for shares in track.shares.values()) <= 1.0001 for track in workers)
    assert [tree.role for tree in activity.code] == [TRAINER, WORKER]
    assert activity.code[1].pid in {track.pid for track in workers}


def test_the_verdicts_line_costs_most() -> None:
    diagnosis = diagnosed("slow_preprocessing_workers")
    first = max(
        (line for line in diagnosis.activity.lines if line.cause == diagnosis.verdict.cause),
        key=lambda line: line.share,
    )
    assert first.line in worded(diagnosis.verdict.summary)
    assert first.share <= diagnosis.verdict.share + 1e-9


def test_steps_are_drawn_where_they_were_marked_and_else_it_is_said_why_not() -> None:
    inside, outside = diagnosed("ddp_every_microbatch"), diagnosed("straggler_disk")
    for times in inside.activity.steps:
        assert len(times.lengths_s) == len(times.starts_s)
        assert max(times.lengths_s) == pytest.approx(times.slowest.length_s)
        assert times.usual.length_s == pytest.approx(inside.ranks[times.rank]["steps"]["median_s"], rel=0.05)
        for step in (times.usual, times.slowest):
            assert sum(part.length_s for part in step.parts) == pytest.approx(step.length_s, rel=0.01)
    assert inside.activity.steps
    assert outside.activity.steps == ()
    assert "with diagnose():" in " ".join(map(worded, outside.not_drawn))


def test_phases_over_time_are_those_that_were_marked() -> None:
    diagnosis = diagnosed("ddp_every_microbatch")
    assert [track.rank for track in diagnosis.activity.phases][:1] == [0]
    track = diagnosis.activity.phases[0]
    for place, seen in enumerate(track.seen):
        assert sum(shares[place] for shares in track.shares.values()) == pytest.approx(float(seen))
    marked = diagnosis.ranks[0]["steps"]["phases"]
    for name, shares in track.shares.items():
        assert sum(shares) / sum(track.seen) == pytest.approx(marked[name]["share"], abs=0.03)


def test_without_marks_the_phases_are_those_of_stacks() -> None:
    diagnosis = diagnosed("straggler_disk")
    assert [track.rank for track in diagnosis.activity.phases] == [0, 1], "the first rank and the straggler"
    for track, rank in zip(diagnosis.activity.phases, diagnosis.ranks, strict=True):
        for name, share in rank["phases"].items():
            drawn = sum(track.shares[name]) / sum(track.seen)
            assert drawn == pytest.approx(share, abs=0.08)  # bins count alike, however many samples they hold


def test_what_lies_outside_of_phases_is_what_was_seen_there() -> None:
    step = Step(0, 0, 1_000_000_000)
    samples = [
        Sampled(time_ns, Amounts({cause: 1.0}))
        for time_ns, cause in (
            (100_000_000, "cpu.model_compute"), (400_000_000, "io.checkpoint_write"),
            (600_000_000, "io.checkpoint_write"), (800_000_000, "cpu.python_overhead"), (950_000_000, "unattributed"),
        )
    ]  # fmt: skip
    forward, other = StepPart("forward", 0.0, 0.2), StepPart("other", 0.2, 0.8)
    assert list(explained(forward, step, samples)) == [forward]
    found = [(part.start_s, round(part.length_s, 6), part.cause) for part in explained(other, step, samples)]
    assert found == [(0.2, 0.5, "io.checkpoint_write"), (0.7, 0.175, "cpu.python_overhead"), (0.875, 0.125, "")]
    assert list(explained(other, step, samples[:1])) == [other], "nobody looked"


@pytest.mark.parametrize(
    ("numbers", "every"),
    [
        *(((49, 99, 149), 50), ((49, 99, 150, 200), 50), ((49, 99), None), ((10, 60, 70), None), ((5, 6, 7, 8), None)),
        (tuple(sorted((*range(9, 400, 10), 204))), 10),
    ],
)
def test_long_steps_have_a_period_where_they_come_regularly(numbers: tuple[int, ...], every: int | None) -> None:
    assert period(numbers) == every


@pytest.mark.parametrize("name", NAMES)
def test_a_page_of_a_recording_is_small(name: str) -> None:
    assert len(render(diagnosed(name)).encode()) < 500_000


def test_the_causes_of_a_rank_sum_to_its_time_and_its_waits_lie_among_them() -> None:
    waits = []
    for rank in diagnosed("straggler_disk").ranks:
        assert sum(line["share"] for line in rank["breakdown"]) == pytest.approx(1.0, abs=0.001)
        waits.append(sum(rank["waits_for"].values()))
    assert max(waits) > 0.5, "one rank waits for most of its time, and its causes are what the other one did"


def test_a_page_of_64_real_ranks_is_small(tmp_path: Path) -> None:
    file = tmp_path / "job.perfdoctor"
    packing.unpack(corpus.FOLDER / f"tiny_collectives{corpus.SUFFIX}", file)
    repeat_ranks(file, 32)
    with Recording.open(file) as recording:
        diagnosis = examine(recording)
    assert [rank["rank"] for rank in diagnosis.ranks] == list(range(64))
    page = render(diagnosis)
    assert len(page.encode()) < 2_000_000
    assert page.count('class="plot band"') >= 64
