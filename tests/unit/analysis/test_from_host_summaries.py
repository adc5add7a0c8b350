"""Recordings of several hosts as one job: the rank that all wait for, hosts that are missing, and those that differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.__main__ import main
from perfdoctor.analysis.from_host_summaries import diagnose_hosts
from perfdoctor.analysis.host_summary import HostSummary
from perfdoctor.analysis.one_job import NotOneJobError, Part
from perfdoctor.attribution.account import Account
from perfdoctor.diagnosis import OUTSIDE, Diagnosis
from perfdoctor.knowledge.frames import Frame
from perfdoctor.reports.wording import worded_diagnosis
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.processes import Process
from tests.builders import jobs

SLICES = 20
COMPUTE, INPUT, WAITS = "cpu.model_compute", "cpu.input_preprocessing", "communication.unattributed_wait"
SOUND = {COMPUTE: 0.5, WAITS: 0.5}
LATE = {COMPUTE: 0.5, INPUT: 0.4, WAITS: 0.1}
MODEL = (jobs.OWN, jobs.MODULE)
MEETING = (jobs.OWN, Frame("/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "all_reduce", 3000))
STARTED = "2026-01-01T12:00:00+0000"


def account(rank: int, causes: Mapping[str, float]) -> Account:
    trainer = Process(1000 + rank, 1, 0, None, "trainer", 0, rank)
    own = {number: Amounts(causes) for number in range(SLICES)}
    return Account(trainer, own=own, phases=Amounts({"forward": float(SLICES)}))


def host(name: str, *ranks: tuple[int, Mapping[str, float]], world: int = 4, **changed: Any) -> HostSummary:
    accounts = tuple(account(rank, causes) for rank, causes in ranks)
    trainers = tuple(Trainer(rank, 1000 + rank, causes, {"forward": 1.0}, {}, (), 2) for rank, causes in ranks)
    shares = Amounts.summed(causes for _, causes in ranks).fractions()
    values: dict[str, Any] = {
        "source": f"{name}.perfdoctor",
        "name": name,
        "version": "0.1.0",
        "torch": "2.9.0",
        "started": STARTED,
        "world": world,
        "numbered": True,
        "run": (),
        "level": OUTSIDE,
        "accounts": accounts,
        "case": Case(shares, trainers, {}, watched_s=float(SLICES)),
        "silence": "",
        "steps": {},
        "not_examined": (),
    }
    return HostSummary(**{**values, **changed})


def diagnosis_of(*hosts: HostSummary) -> Diagnosis:
    return worded_diagnosis(diagnose_hosts(hosts))


def notes(diagnosis: Diagnosis) -> str:
    return "\n".join(str(one.reason) for one in diagnosis.not_examined)


def waits(diagnosis: Diagnosis, rank: int) -> dict[str, float]:
    [found] = [one for one in diagnosis.ranks if one["rank"] == rank]
    return {other: round(share, 3) for other, share in found["waits_for"].items()}


def test_the_rank_that_waits_least_is_named_with_its_own_cause() -> None:
    found = diagnosis_of(host("a", (0, SOUND), (1, SOUND)), host("b", (2, SOUND), (3, LATE)))
    assert (found.verdict.cause, found.verdict.straggler_rank) == (INPUT, 3)
    assert [waits(found, rank) for rank in range(4)] == [{"3": 0.4}, {"3": 0.4}, {"3": 0.4}, {}]
    shares = {line.cause: line.share for line in found.breakdown}
    assert shares[INPUT] == pytest.approx(0.4)
    assert shares[WAITS] == pytest.approx(0.1)  # which all ranks have alike
    assert [one["host"] for one in found.ranks] == ["a", "a", "b", "b"]
    assert "are of host b" in notes(found)


def test_a_late_rank_that_does_no_more_of_anything_is_named_without_a_cause() -> None:
    late = {COMPUTE: 0.5, "unattributed": 0.5}
    found = diagnosis_of(host("a", (0, SOUND), (1, SOUND)), host("b", (2, SOUND), (3, late)))
    assert waits(found, 0) == {"3": 0.5}
    assert {line.cause for line in found.breakdown} == {COMPUTE, "unattributed"}


def test_ranks_that_wait_alike_wait_for_nobody() -> None:
    found = diagnosis_of(host("a", (0, SOUND), (1, SOUND)), host("b", (2, SOUND), (3, SOUND)))
    assert found.verdict.straggler_rank is None
    assert all(waits(found, rank) == {} for rank in range(4))


def test_ranks_and_hosts_that_are_missing_are_named() -> None:
    found = diagnosis_of(host("a", (0, SOUND), world=9), host("b", (5, SOUND), world=9))
    assert "2 of 9 ranks were seen: waiting for the others is not followed. Missing: 1 to 4, 6 to 8." in notes(found)


def test_the_later_of_two_recordings_of_a_host_counts() -> None:
    older = host("a", (0, SOUND), world=2, source="old.perfdoctor", started="2026-01-01T11:00:00+0000")
    found = diagnosis_of(host("a", (0, SOUND), world=2), older, host("b", (1, SOUND), world=2))
    assert "old.perfdoctor: an older recording of the same ranks on host a" in notes(found)
    assert [one["recording"] for one in found.ranks] == ["a.perfdoctor", "b.perfdoctor"]


def test_of_the_older_recording_the_size_does_not_count() -> None:
    older = host("a", (0, SOUND), world=8, source="old.perfdoctor", started="2026-01-01T11:00:00+0000")
    assert len(diagnosis_of(older, host("a", (0, SOUND), world=2), host("b", (1, SOUND), world=2)).ranks) == 2


def test_a_rank_that_restarted_on_another_host_counts_there() -> None:
    restarted = host("c", (1, LATE), world=2, started="2026-01-01T12:00:05+0000")
    found = diagnosis_of(host("a", (0, SOUND), (1, SOUND), world=2), restarted)
    assert places(found) == [(0, "a"), (1, "c")]
    assert "On two hosts there are recordings of the same ranks (1)" in notes(found)


def places(found: Diagnosis) -> list[tuple[int, str]]:
    return sorted((one["rank"], one["host"]) for one in found.ranks)


def test_ranks_without_numbers_are_numbered_host_by_host() -> None:
    counted = host("b", (0, SOUND), (1, LATE), world=2, numbered=False)
    found = diagnosis_of(counted, host("a", (0, SOUND), (1, SOUND), world=2, numbered=False))
    assert places(found) == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    assert (found.verdict.straggler_rank, found.job["world_size"]) == (3, 4)
    assert "No launcher numbers the ranks: they are numbered host by host" in notes(found)


def test_ranks_that_a_launcher_has_numbered_keep_their_numbers() -> None:
    counted = host("a", (0, SOUND), (1, SOUND), world=2, numbered=False)
    found = diagnosis_of(counted, host("b", (0, SOUND), (2, LATE)))
    assert places(found) == [(0, "b"), (1, "a"), (2, "b"), (3, "a")]
    assert "No launcher numbers the ranks on a: they get the numbers that are left" in notes(found)
    assert "same ranks" not in notes(found)


def test_hosts_that_differ_in_their_versions_or_times_are_named() -> None:
    other = host("c", (2, SOUND), torch="2.8.0", version="0.0.9", started="2026-01-01T12:10:00+0000")
    told = notes(diagnosis_of(host("a", (0, SOUND)), host("b", (1, SOUND)), other))
    assert "version of perfdoctor: most have 0.1.0, but c 0.0.9." in told
    assert "version of torch: most have 2.9.0, but c 2.8.0." in told
    assert "By their hosts' clocks c.perfdoctor begins 9 min 40 s after" in told
    assert "if these are right" in told


def test_a_host_on_which_nobody_trains_is_named_and_left_out() -> None:
    idle = host("c", accounts=(), silence="No process of this job trains.")
    found = diagnosis_of(host("a", (0, SOUND), world=1), idle)
    assert "Host c is left out: No process of this job trains." in notes(found)
    nobody = diagnosis_of(idle)
    assert nobody.verdict.cause is None
    assert "Host c is left out" in notes(nobody)


def test_recordings_of_two_jobs_are_refused() -> None:
    with pytest.raises(NotOneJobError, match=r"not of one job: a.* is of 4 ranks, b.* is of 8 ranks"):
        diagnosis_of(host("a", (0, SOUND)), host("b", (5, SOUND), world=8))


def test_recordings_that_hold_all_ranks_of_jobs_of_other_sizes_are_refused() -> None:
    with pytest.raises(NotOneJobError, match=r"b.* is of 1 ranks, a.* is of 2 ranks"):
        diagnosis_of(host("a", (0, SOUND), (1, SOUND), world=2), host("b", (0, SOUND), world=1))


@pytest.mark.parametrize(
    ("part", "size"),
    [
        (Part("all of them", (0, 1), 2, numbered=True), 2),
        (Part("some of them", (2, 3), 4, numbered=True), 4),
        (Part("its launcher does not say how many there are", (4, 5, 6), 3, numbered=True), None),
        (Part("counted", (0, 1), 2, numbered=False), None),
        (Part("counted, and others are known of", (0, 1), 4, numbered=False), 4),
        (Part("nobody trains", (), 0, numbered=False), None),
    ],
    ids=lambda value: value.source if isinstance(value, Part) else "",
)
def test_how_many_ranks_a_job_has_is_known_where_somebody_said_it(part: Part, size: int | None) -> None:
    assert part.is_of == size


def run(port: int) -> tuple[str, ...]:
    return ("MASTER_ADDR", "MASTER_PORT", "node1", str(port))


def test_ranks_of_two_runs_are_refused_and_named_by_their_recordings() -> None:
    one, other = host("a", (0, SOUND), world=2, run=run(1)), host("b", (0, SOUND), (1, SOUND), world=2, run=run(2))
    with pytest.raises(NotOneJobError, match=r"^a\.perfdoctor and b\.perfdoctor are of two jobs: rank 0") as refused:
        diagnosis_of(one, other)
    assert "a folder of their own" in refused.value.hint


def test_other_ranks_are_of_one_job_though_they_meet_by_another_name() -> None:
    """The host on which ranks meet may have been told to meet at localhost."""
    assert (
        len(diagnosis_of(host("a", (0, SOUND), world=2, run=run(1)), host("b", (1, SOUND), run=run(2), world=2)).ranks)
        == 2
    )


@pytest.mark.parametrize(("begun", "refused"), [("11:00:00", False), ("11:59:50", True)])
def test_an_earlier_run_of_a_host_is_left_out_and_one_beside_it_is_another_job(begun: str, refused: bool) -> None:
    other = host("a", (0, SOUND), world=1, source="b.perfdoctor", run=run(2), started=f"2026-01-01T{begun}+0000")
    hosts = host("a", (0, SOUND), world=1, run=run(1)), other
    if refused:
        with pytest.raises(NotOneJobError, match="are of two jobs"):
            diagnosis_of(*hosts)
    else:
        assert "b.perfdoctor: an older recording of the same ranks on host a" in notes(diagnosis_of(*hosts))


@pytest.mark.parametrize("summarised", [False, True])
@pytest.mark.parametrize("meeting", [("localhost", "localhost"), ("node0", "node1")])
def test_two_jobs_in_one_folder_are_refused(
    summarised: bool, meeting: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of torchrun, each on a host of its own: both number their ranks from 0."""
    folder = tmp_path / "hosts"
    folder.mkdir()
    for number, place in enumerate(meeting):
        samples = []
        for rank in range(2):
            pid = 100 + rank
            variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": place, "MASTER_PORT": "29500"}
            samples += [*jobs.process(pid, **variables), *jobs.thread(pid, pid, run=0.9), *jobs.stacks(pid, MODEL)]
        jobs.write(folder / f"node{number}.perfdoctor", samples, host=f"node{number}", started=STARTED)
    kept = ["--summaries", str(tmp_path / "kept.sqlite")] if summarised else []
    assert main(["analyze", str(folder), *kept]) == 1
    said = capsys.readouterr().err.splitlines()
    assert "node0.perfdoctor and node1.perfdoctor are of two jobs: rank 0 is in both" in said[0]
    assert "Keep the recordings of one job in a folder of their own." in said[1]


@pytest.mark.parametrize("summarised", [False, True])
def test_a_folder_of_recordings_is_a_job(summarised: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "hosts"
    folder.mkdir()
    for rank, halves in enumerate(([MODEL, MODEL], [MODEL, MEETING])):
        pid = 100 + rank
        states = "".join("R" * 25 if frames is MODEL else "S" * 25 for frames in halves)
        samples = [
            *jobs.process(pid, RANK=str(rank), WORLD_SIZE="2"),
            *jobs.thread(pid, pid, states, run=states.count("R") / len(states)),
            *jobs.named(pid, pid, 1),
            *jobs.stacks(pid, *halves, times=20, every_s=0.5),
        ]
        jobs.write(folder / f"node{rank}.perfdoctor", samples, host=f"node{rank}", started=STARTED)
    (folder / "node2.perfdoctor").write_bytes(b"SQLite format 3\0" + bytes(100))
    told = tmp_path / "out.json"
    options = ["--summaries", str(tmp_path / "kept.sqlite")] if summarised else []
    assert main(["analyze", str(folder), "--json", str(told), *options]) == 0
    diagnosis = json.loads(told.read_text())
    assert diagnosis["verdict"]["straggler_rank"] == 0
    assert [rank["host"] for rank in diagnosis["ranks"]] == ["node0", "node1"]
    assert diagnosis["ranks"][1]["waits_for"]["0"] == pytest.approx(0.5, abs=0.02)
    printed = " ".join(capsys.readouterr().out.split())
    assert "Left out: node2.perfdoctor" in printed
    assert ("Hosts are compared by how long their ranks wait" in printed) == summarised
