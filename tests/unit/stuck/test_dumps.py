"""Dumps of torch's Flight Recorder: which rank did not come to a collective, and which calls do not match."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.results import stuck as kinds
from perfdoctor.results.stuck import Stuck
from perfdoctor.stuck.dumps import DumpError, read_dump
from perfdoctor.stuck.recorded_calls import judge_dumps
from tests.builders.flight_dumps import ALL, WRITTEN_NS, call, dumps, named, written

DONE = call(1, ended=True)


def judged(*of_ranks: Any, **groups: Any) -> tuple[str, int | None, tuple[int, ...]]:
    stuck = stuck_of(*of_ranks, **groups)
    return stuck.kind, stuck.rank, stuck.ranks


def stuck_of(*of_ranks: Any, **groups: Any) -> Stuck:
    found = judge_dumps(dumps(*of_ranks, **groups))
    assert found is not None
    return found


def test_the_rank_that_did_not_come_is_named_with_its_last_call() -> None:
    waiting = [DONE, call(2)]
    assert judged(waiting, [DONE], waiting) == (kinds.RANK_ELSEWHERE, 1, (1,))
    stuck = stuck_of(waiting, [DONE], waiting)
    assert [(halt.rank, halt.collective, halt.sequence) for halt in stuck.chain] == [(1, "all_reduce", 1)]
    assert [(halt.rank, halt.sequence, halt.line) for halt in stuck.waiting] == [
        (0, 2, "/home/me/train.py:40 main"),
        (2, 2, "/home/me/train.py:40 main"),
    ]
    assert stuck.since_s == 700.0


@pytest.mark.parametrize(
    "other", [call(2, "broadcast"), call(2, size=2048), call(2, dtype="Half")], ids=["operation", "size", "type"]
)
def test_the_rank_whose_call_is_another_one_is_named(other: dict[str, Any]) -> None:
    usual = [DONE, call(2)]
    assert judged(usual, usual, [DONE, other]) == (kinds.MISMATCH, 2, (2,))
    assert judged(usual, [DONE, other]) == (kinds.MISMATCH, None, (0, 1))


def test_some_calls_may_have_other_sizes_on_every_rank() -> None:
    calls = [[DONE, call(2, "all_to_all", size=size)] for size in (10, 20)]
    assert judged(*calls) == (kinds.NETWORK, None, ())


def test_ranks_that_left_no_dump_are_told_and_not_guessed_at() -> None:
    waiting = [DONE, call(2)]
    assert judged(waiting, None, waiting) == (kinds.UNWATCHED_RANK, None, (1,))
    assert judged(waiting, None, [DONE]) == (kinds.RANK_ELSEWHERE, 2, (2,))


def test_a_wait_is_followed_over_groups() -> None:
    groups = {"tp0": (0, 1), "tp1": (2, 3), "dp": (1, 3)}
    first, second, across = named("tp0"), named("tp1"), named("dp")
    found = judged(
        [call(1, group=first)],
        [call(1, group=across)],
        [call(1, group=second, ended=True)],
        [call(1, group=second, ended=True)],
        **groups,
    )
    assert found == (kinds.RANK_ELSEWHERE, 3, (3,))


def test_ranks_that_enter_two_groups_in_opposite_order_wait_in_a_circle() -> None:
    groups = {"one": (0, 1), "other": (0, 1)}
    stuck = stuck_of([call(1, group=named("one"))], [call(1, group=named("other"))], **groups)
    assert (stuck.kind, stuck.ranks) == (kinds.MISMATCH, (0, 1))
    assert [halt.group for halt in stuck.chain] == ["one", "other"]


def test_messages_wait_for_the_rank_at_the_other_end() -> None:
    both_receive = judged([call(1, "recv 0<-1")], [call(1, "recv 1<-0")])
    assert both_receive == (kinds.MISMATCH, None, (0, 1))
    assert judged([DONE, call(1, "recv 0<-1")], [DONE]) == (kinds.RANK_ELSEWHERE, 1, (1,))
    assert judged([call(1, "recv 0<-1")], [call(1, "send 1->0")]) == (kinds.NETWORK, None, ())


def test_what_the_recorder_has_forgotten_is_not_missing() -> None:
    """Its buffer holds the last calls only, and of ranks that call more it holds fewer of each group."""
    many = [call(number, ended=True) for number in range(10, 20)]
    assert judged([*many, call(20)], [call(19, ended=True), call(20)]) == (kinds.NETWORK, None, ())


def test_a_short_wait_is_no_hang_unless_torch_gave_it_up() -> None:
    brief = [DONE, call(2, ago_s=20.0)]
    assert judge_dumps(dumps(brief, [DONE])) is None
    assert judge_dumps(dumps([DONE], [DONE])) is None
    long = stuck_of([call(1, ended=True, ago_s=90.0), call(2, ago_s=80.0)], [call(1, ended=True, ago_s=90.0)])
    given_up = stuck_of([call(1, ago_s=20.0, timeout_s=15.0)], [])
    assert long.confidence < given_up.confidence


def test_a_file_that_was_copied_long_afterwards_does_not_tell_for_how_long() -> None:
    stuck = stuck_of([call(1, ago_s=90_000.0)], [])
    assert (stuck.kind, stuck.rank, stuck.since_s) == (kinds.RANK_ELSEWHERE, 1, 0.0)
    assert stuck.confidence <= 0.5


def test_gloo_marks_calls_that_have_ended_as_retired_only() -> None:
    gloo = {"profiling_name": "gloo:all_reduce", "retired": True}
    assert judge_dumps(dumps([call(1, **gloo)], [call(1, **gloo)])) is None
    # NCCL retires a call that has timed out, too.
    assert judged([call(1, retired=True)], []) == (kinds.RANK_ELSEWHERE, 1, (1,))


class _Runs:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="more than plain data"):
        read_dump(0, 0, pickle.dumps({"entries": [_Runs(tmp_path / "ran")]}, protocol=2))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("data", [b"", b"\x80\x02}q", b"{", b"[1]", pickle.dumps([1]), pickle.dumps({"entries": [{}]})])
def test_damaged_dumps_are_told(data: bytes) -> None:
    with pytest.raises(DumpError):
        read_dump(0, 0, data)


def test_half_of_a_dump_is_damaged() -> None:
    data = written([DONE], {ALL: (0, 1)})
    assert read_dump(0, WRITTEN_NS, data).calls
    with pytest.raises(DumpError, match="damaged"):
        read_dump(0, WRITTEN_NS, data[: len(data) // 2])
