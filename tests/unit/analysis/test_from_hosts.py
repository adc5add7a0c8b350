"""A job on several hosts: recordings of each, on clocks of their own, become one diagnosis."""

import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from random import Random

import pytest

from perfdoctor.analysis.from_hosts import examine_hosts
from perfdoctor.analysis.one_job import NotOneJobError
from perfdoctor.attribution.attribute import attribute
from perfdoctor.attribution.host_clocks import clock_offsets
from perfdoctor.causes import MODEL_COMPUTE, PYTHON_OVERHEAD, STORAGE_READ
from perfdoctor.diagnosis import Diagnosis
from perfdoctor.errors import PerfDoctorError
from perfdoctor.knowledge.frames import Frame
from perfdoctor.messages import say
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.other_clock import ClockOffset, on_other_clock
from perfdoctor.recording.reader import Recording
from perfdoctor.recording.schema import Sample
from perfdoctor.reports.wording import worded
from perfdoctor.results import stuck as kinds
from perfdoctor.timeline.job import JobTimeline
from tests.builders import jobs

AHEAD_S = 7.25
TIME_OF_DAY = 1_700_000_000 * NS_PER_S
IN_MODEL = (jobs.OWN, jobs.MODULE)


def steps(seed: int = 1) -> list[tuple[str, int]]:
    """States of a punctual rank and of a late one, sample by sample: no step is as long as the one before."""
    random, punctual, late = Random(seed), "", ""
    while len(punctual) <= jobs.SECONDS * jobs.PER_S:
        work, wait = random.randint(2, 5), random.randint(3, 16)
        punctual += "R" * work + "S" * wait + "R" * 2
        late += "R" * (work + wait) + "S" + "R"
    return [(punctual, 0), (late, 1)]


def rank(number: int, states: str, size: int = 2, stacks: Sequence[tuple[Frame, ...]] = (IN_MODEL,)) -> list[Sample]:
    """A host with one trainer; process ids are the same on all of them."""
    return [
        *jobs.process(100, RANK=str(number), WORLD_SIZE=str(size)),
        *jobs.thread(100, 100, states, run=states.count("R") / len(states)),
        *jobs.stacks(100, *stacks),
        *jobs.readings("host", "usable_cores", 8.0),
    ]


@pytest.fixture
def hold() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def on_hosts(hold: ExitStack, samples: Sequence[list[Sample]], *, wrong_by_s: float = 0.0) -> list[Recording]:
    """Recordings of hosts whose clocks are ahead of each other, and whose times of day differ by so much."""
    found: list[Recording] = []
    for number, some in enumerate(samples):
        ahead = round(number * AHEAD_S * NS_PER_S)
        epoch = TIME_OF_DAY - ahead + round(number * wrong_by_s * NS_PER_S)
        meta = {"host": f"node{number}", "clock": f"boot{number} time:[1]", "epoch_ns": str(epoch)}
        found.append(on_other_clock(hold.enter_context(jobs.recorded(some, **meta)), ClockOffset(ahead_ns=-ahead)))
    return found


@pytest.mark.parametrize("wrong_by_s", [0.0, 3.0])
def test_the_late_rank_is_found_on_its_host_though_clocks_differ(hold: ExitStack, wrong_by_s: float) -> None:
    (punctual, _), (late, _) = steps()
    found = examine_hosts(on_hosts(hold, [rank(0, punctual), rank(1, late)], wrong_by_s=wrong_by_s))
    assert found.verdict.straggler_rank == 1
    here, there = found.job["hosts"]
    assert (here["name"], here["ranks"], here["clock_ahead_s"]) == ("node0", [0], 0)
    assert there["clock_ahead_s"] == pytest.approx(AHEAD_S, abs=0.02)
    assert there["clock_error_s"] < 0.02
    assert [one["host"] for one in found.ranks] == ["node0", "node1"]
    # What is waited for lies in the other rank, and is what that does.
    on_one_host = pytest.approx(waited(punctual, late), abs=0.08)  # clocks are known to half a sample
    assert found.ranks[0]["waits_for"]["1"] == on_one_host
    assert found.verdict.cause == MODEL_COMPUTE
    assert found.job["host"] == "node1"


def waited(punctual: str, late: str) -> float:
    """How much of the time the first rank waits, were both on one host."""
    both = [
        *jobs.process(100, RANK="0", WORLD_SIZE="2"),
        *jobs.thread(100, 100, punctual, run=punctual.count("R") / len(punctual)),
        *jobs.stacks(100, IN_MODEL),
        *jobs.process(200, RANK="1", WORLD_SIZE="2"),
        *jobs.thread(200, 200, late, run=late.count("R") / len(late)),
        *jobs.stacks(200, IN_MODEL),
        *jobs.readings("host", "usable_cores", 8.0),
    ]
    account = attribute(jobs.timeline(both))[0]
    return account.waited_for()[1] / account.seconds


def test_libraries_that_a_cause_calls_are_those_of_the_host_where_most_of_it_lies(hold: ExitStack) -> None:
    image = Frame("/v/lib/python3.11/site-packages/PIL/Image.py", "Image.rotate", 900)
    signal = Frame("/v/lib/python3.11/site-packages/scipy/signal/_filter.py", "lfilter", 900)
    computes = rank(0, "R", stacks=(IN_MODEL, (jobs.OWN, image)))
    reads = rank(1, "RRRD", stacks=(IN_MODEL, (jobs.OWN, signal)))
    found = examine_hosts(on_hosts(hold, [computes, reads]))
    called = {
        finding.cause: str(dict(one.value.values)["what"])  # type: ignore[union-attr]
        for finding in found.findings
        for one in finding.evidence
        if one.name == say("finding.library_call")
    }
    assert called == {
        MODEL_COMPUTE: "PIL Image.rotate",
        PYTHON_OVERHEAD: "PIL Image.rotate",
        STORAGE_READ: "scipy lfilter",
    }


def test_steps_that_are_all_alike_leave_the_time_of_day(hold: ExitStack) -> None:
    found = examine_hosts(on_hosts(hold, [rank(0, "RRSSR"), rank(1, "RRRSR")]))
    (_, there) = found.job["hosts"]
    assert (there["clock_ahead_s"], there["clock_error_s"]) == (AHEAD_S, None)
    assert "clock" in probes_not_examined(found)


def test_clocks_that_run_apart_are_followed_also_in_a_last_short_piece(
    hold: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SECONDS", 150)
    ((punctual, _), (late, _)), drift = steps(), 1e-4
    first, other = on_hosts(hold, [rank(0, punctual), rank(1, late)])
    hosts = [JobTimeline(first), JobTimeline(on_other_clock(other, ClockOffset(at_ns=jobs.START, drift=-drift)))]
    _, found = clock_offsets(hosts)
    assert found.drift == pytest.approx(drift, rel=0.02)
    late_by = found.ahead_ns / NS_PER_S - AHEAD_S
    assert late_by == pytest.approx(1 / jobs.PER_S, abs=0.002)  # it is seen to leave a sample later


def test_ranks_that_nobody_watched_are_named(hold: ExitStack) -> None:
    found = examine_hosts(on_hosts(hold, [rank(0, "RRSS", size=4), rank(2, "RRSS", size=4)]))
    (said,) = [item.reason for item in found.not_examined if item.probe == "ranks"]
    assert dict(said.values) == {"ranks": ((1, 1), (3, 3)), "more": 0, "seen": 2, "world": 4}  # type: ignore[union-attr]


def probes_not_examined(found: Diagnosis) -> list[str]:
    return [item.probe for item in found.not_examined]


def test_a_rank_that_is_in_two_recordings_is_refused(hold: ExitStack) -> None:
    with pytest.raises(PerfDoctorError, match="Rank 0 is in both"):
        examine_hosts(on_hosts(hold, [rank(0, "RS"), rank(0, "RS")]))


def test_jobs_of_different_sizes_are_refused(hold: ExitStack) -> None:
    with pytest.raises(NotOneJobError, match=r"is of 2 ranks, .* is of 3 ranks"):
        examine_hosts(on_hosts(hold, [rank(0, "RS"), rank(1, "RS", size=3)]))


@pytest.mark.parametrize(
    ("wrong_by_s", "said"),
    [
        (9.0, "all hosts were watched together for 1.0 s only"),
        (60.0, "begins 50.0 s after"),
        (-60.0, "begins 50.0 s after"),
        (7 * 86400.0, "begins 604,790.0 s after"),
    ],
)
def test_recordings_without_a_common_time_are_refused_by_what_their_clocks_say(
    hold: ExitStack, wrong_by_s: float, said: str
) -> None:
    """Whether a clock is wrong, or a recording is of another week, is not known."""
    with pytest.raises(PerfDoctorError, match=f"By the hosts' clocks .*{said}") as refused:
        examine_hosts(on_hosts(hold, [rank(0, "RRSSR"), rank(1, "RRRSR")], wrong_by_s=wrong_by_s))
    assert "NTP" in refused.value.hint


def test_instants_are_not_sought_over_the_time_between_two_recordings(hold: ExitStack) -> None:
    """On a grid of 2 ms an hour took half a gigabyte."""
    hosts = on_hosts(hold, [rank(number, states) for states, number in steps()], wrong_by_s=3600.0)
    tracemalloc.start()
    try:
        with pytest.raises(PerfDoctorError, match=r"begins 3,590\.0 s after"):
            examine_hosts(hosts)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


# --- jobs that make no progress --------------------------------------------------------------------------------------

MAIN = Frame("/home/me/train.py", "<module>", 1)
LOCK = (MAIN, Frame("/home/me/train.py", "fill", 60))
C10D = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
REDUCES = (MAIN, Frame("/home/me/train.py", "main", 40), Frame(C10D, "all_reduce", 3000))


def still(
    number: int, stack: tuple[Frame, ...], *, world: int = 2, of_host: tuple[int, int] | None = None
) -> list[Sample]:
    """A rank that sleeps at one place; its number and how many there are on its host, where its launcher says so."""
    pid = 100 + number
    variables = {"RANK": str(number), "WORLD_SIZE": str(world), "MASTER_ADDR": "10.0.0.1"}
    if of_host is not None:
        variables |= {"LOCAL_RANK": str(of_host[0]), "LOCAL_WORLD_SIZE": str(of_host[1])}
    return [
        *jobs.process(pid, parent=5, **variables),
        *jobs.thread(pid, pid, "S", call="futex", switches=0.0),
        *jobs.stacks(pid, stack),
    ]


def test_a_rank_that_holds_up_those_on_other_hosts_is_named_with_its_host(hold: ExitStack) -> None:
    found = examine_hosts(on_hosts(hold, [still(0, REDUCES), still(1, LOCK)]))
    assert found.stuck is not None
    assert (found.stuck.kind, found.stuck.rank) == (kinds.LOCK, 1)
    assert [(halt.host, halt.line) for halt in found.stuck.chain] == [("node1", "/home/me/train.py:60 fill")]
    assert [(halt.host, halt.collective) for halt in found.stuck.waiting] == [("node0", "all_reduce")]
    assert (found.verdict.bottleneck, found.verdict.straggler_rank) == (None, 1)


def test_whatever_moves_on_one_host_makes_the_job_slow_and_not_stuck(hold: ExitStack) -> None:
    reads = jobs.readings("pid:101", "read_call_bytes_total", *(20_000.0 * second for second in range(11)))
    assert examine_hosts(on_hosts(hold, [still(0, REDUCES), [*still(1, LOCK), *reads]])).stuck is None


def test_ranks_that_hang_alike_on_several_hosts_are_told_together_and_looked_at_on_each(hold: ExitStack) -> None:
    stuck = examine_hosts(on_hosts(hold, [still(0, LOCK), still(1, LOCK)])).stuck
    assert stuck is not None
    assert (stuck.kind, stuck.rank, stuck.ranks) == (kinds.LOCK, None, (0, 1))
    assert "each of ranks 0, 1 (processes 100 on node0 and 101 on node1)" in worded(stuck.summary)
    told = worded(stuck.next_move)
    assert told.index("On node0: ") < told.index("`py-spy dump --pid 100`") < told.index("On node1: ")
    assert told.index("On node1: ") < told.index("`py-spy dump --pid 101`")


def test_ranks_of_different_hosts_in_calls_that_do_not_go_together(hold: ExitStack) -> None:
    elsewhere = (MAIN, Frame("/work/me/train.py", "main", 40), Frame(C10D, "all_reduce", 3000))
    barrier = (MAIN, Frame("/home/me/train.py", "main", 90), Frame(C10D, "barrier", 4000))
    three = [still(0, REDUCES, world=3), still(1, elsewhere, world=3), still(2, barrier, world=3)]
    stuck = examine_hosts(on_hosts(hold, three)).stuck
    assert stuck is not None
    assert (stuck.kind, stuck.rank) == (kinds.MISMATCH, 2)
    together = examine_hosts(on_hosts(hold, [still(0, REDUCES), still(1, elsewhere)])).stuck
    assert together is not None
    assert together.kind == kinds.NETWORK


def test_a_rank_that_is_gone_is_told_from_one_whose_host_was_not_watched(hold: ExitStack) -> None:
    one_gone = [
        still(0, REDUCES, world=4, of_host=(0, 2)),
        [*still(2, REDUCES, world=4, of_host=(0, 2)), *still(3, REDUCES, world=4, of_host=(1, 2))],
    ]
    gone = examine_hosts(on_hosts(hold, one_gone)).stuck
    assert gone is not None
    assert (gone.kind, gone.rank, gone.ranks) == (kinds.MISSING_RANK, 1, (1,))
    two_hosts = [still(0, REDUCES, world=4, of_host=(0, 1)), still(2, REDUCES, world=4, of_host=(0, 1))]
    unwatched = examine_hosts(on_hosts(hold, two_hosts)).stuck
    assert unwatched is not None
    assert (unwatched.kind, unwatched.rank, unwatched.ranks) == (kinds.UNWATCHED_RANK, None, (1, 3))
    assert unwatched.confidence < gone.confidence
