"""How much of the time lies in detours of the job's own source."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.own_detours import Piece, find_costly
from perfdoctor.recording.own_source import SourceDetour
from perfdoctor.timeline.stacks import Stacks
from tests.builders import jobs

FILE, TORCH = "/job/train.py", "/v/lib/python3.11/site-packages/torch"
FORWARD, TABLE = Frame(FILE, "Net.forward", 20), Frame(FILE, "table", 5)
MODEL = (Frame(FILE, "Net.forward", 30), Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1))
LINES = {f"{FILE}:5 table": 1.0, f"{FILE}:30 Net.forward": 3.0}


def again(line: int, kept: str = "table(n)") -> SourceDetour:
    return SourceDetour(FILE, line, line, "listed", kept, "n", "", "forward")


def test_what_a_detour_calls_is_its_time_too() -> None:
    stacks = Stacks.read(jobs.stacks(1, (FORWARD, TABLE), MODEL, times=300, every_s=0.01))
    own = {"cpu.python_overhead": {f"{FILE}:5 table": 1.0}, "cpu.model_compute": {f"{FILE}:30 Net.forward": 3.0}}
    [found] = find_costly(stacks, [(1, ())], [again(20), again(90)], own, 0.5)
    assert found.share == pytest.approx(0.25, abs=0.02)
    assert (found.line, found.cause) == (f"{FILE}:20 Net.forward", "cpu.python_overhead")
    assert found.lines == {f"{FILE}:5 table"}
    assert found.pieces == (Piece("table(n)", "n", ""),)
    # Where others take the cores, it is as large a part of the work.
    assert find_costly(stacks, [(1, ())], [again(20)], own, 0.05)[0].share == pytest.approx(
        0.05 * found.share / 0.5, abs=0.01
    )
    assert not find_costly(stacks, [(1, ())], [], own, 0.5)


def test_statements_of_one_function_are_one_detour() -> None:
    stacks = Stacks.read(jobs.stacks(1, (FORWARD, TABLE), MODEL[:1], times=300, every_s=0.01))
    own = {"cpu.model_compute": LINES}
    [found] = find_costly(stacks, [(1, ())], [again(20), again(30, "mask(n)")], own, 0.5)
    assert found.share == pytest.approx(0.5, abs=0.02)
    assert {piece.kept for piece in found.pieces} == {"table(n)", "mask(n)"}


def test_what_a_module_computes_in_the_same_statement_is_no_part_of_it() -> None:
    stacks = Stacks.read(jobs.stacks(1, (FORWARD, TABLE), MODEL, times=300, every_s=0.01))
    [found] = find_costly(stacks, [(1, ())], [again(20), again(30, "mask(n)")], {"cpu.model_compute": LINES}, 1.0)
    assert found.share == pytest.approx(0.5, abs=0.02)
    assert {piece.kept for piece in found.pieces} == {"table(n)"}


def test_a_statement_that_makes_two_detours_takes_its_time_once() -> None:
    stacks = Stacks.read(jobs.stacks(1, (FORWARD, TABLE), MODEL, times=300, every_s=0.01))
    [found] = find_costly(stacks, [(1, ())], [again(20), again(20, "mask(n)")], {"cpu.model_compute": LINES}, 0.5)
    assert found.share == pytest.approx(0.25, abs=0.02)
    assert {piece.kept for piece in found.pieces} == {"table(n)", "mask(n)"}


def test_what_is_kept_in_step_is_told_of_even_where_it_was_not_seen() -> None:
    stacks = Stacks.read(jobs.stacks(1, (FORWARD, TABLE), MODEL, times=300, every_s=0.01))
    rows = [
        SourceDetour(FILE, line, line, "joined_cut", kept, "new", "[at]", function)
        for line, kept, function in ((20, "keys", "forward"), (21, "ages", "forward"), (70, "others", "push"))
    ]
    [found] = find_costly(stacks, [(1, ())], rows, {"cpu.model_compute": LINES}, 1.0)
    assert [piece.kept for piece in found.pieces] == ["keys", "ages"]


def test_backward_passes_are_where_all_of_the_time_is() -> None:
    backward = (Frame(FILE, "main", 41), Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 1))
    stacks = Stacks.read(jobs.stacks(1, backward, MODEL, times=300, every_s=0.01))
    passes = SourceDetour(FILE, 40, 41, "two_passes", "first", "second", "", "main")
    own = {"cpu.python_overhead": {f"{FILE}:30 Net.forward": 1.0}, "cpu.model_compute": {f"{FILE}:30 Net.forward": 3.0}}
    [found] = find_costly(stacks, [(1, ())], [passes], own, 1.0)
    assert (found.share, found.cause) == (pytest.approx(0.5, abs=0.02), "cpu.model_compute")


@pytest.mark.parametrize(("overhead", "cause"), [(0.4, "cpu.python_overhead"), (0.02, "cpu.model_compute")])
def test_a_cause_that_is_no_fault_has_it_only_where_no_other_has(overhead: float, cause: str) -> None:
    stacks = Stacks.read(jobs.stacks(1, (FORWARD, TABLE), MODEL, times=300, every_s=0.01))
    line = f"{FILE}:5 table"
    own = {"cpu.python_overhead": {line: overhead}, "cpu.model_compute": {line: 1 - overhead}}
    assert [one.cause for one in find_costly(stacks, [(1, ())], [again(20)], own, 1.0)] == [cause]


@pytest.mark.parametrize("holds", [True, False])
def test_copies_are_those_of_tensors(holds: bool) -> None:
    inside = (Frame(f"{TORCH}/nn/parameter.py", "Parameter.__deepcopy__", 7),) if holds else ()
    stacks = Stacks.read(jobs.stacks(1, (FORWARD, *inside), MODEL, times=300, every_s=0.01))
    copied = SourceDetour(FILE, 20, 20, "copied", "best", "model", "", "forward")
    found = find_costly(stacks, [(1, ())], [copied], {"cpu.model_compute": {f"{FILE}:20 Net.forward": 1.0}}, 1.0)
    assert bool(found) is holds


def test_workers_and_a_launcher_are_none_of_the_steps_time() -> None:
    trainer = jobs.stacks(1, (FORWARD, TABLE), MODEL, times=300, every_s=0.01)
    others = [row for pid in (2, 3, 4) for row in jobs.stacks(pid, (Frame(FILE, "main", 60),), times=300, every_s=0.01)]
    [found] = find_costly(Stacks.read([*trainer, *others]), [(1, ())], [again(20)], {"cpu.model_compute": LINES}, 1.0)
    assert found.share == pytest.approx(0.5, abs=0.02)


def test_a_detour_of_workers_counts_as_far_as_they_are_waited_for() -> None:
    trainer = jobs.stacks(1, MODEL, times=300, every_s=0.01)
    worker = jobs.stacks(2, (FORWARD, TABLE), (Frame(FILE, "load", 60),), times=300, every_s=0.01)
    own = {"cpu.input_preprocessing": {f"{FILE}:5 table": 1.0}, "cpu.model_compute": {f"{FILE}:30 Net.forward": 1.0}}
    [found] = find_costly(Stacks.read([*trainer, *worker]), [(1, (2,))], [again(20)], own, 1.0)
    assert found.share == pytest.approx(0.5 * 0.5, abs=0.02)


def test_weights_that_nobody_takes_count_where_they_are_computed() -> None:
    row = SourceDetour(FILE, 20, 20, "weights_unused", "self.attn", "q, q, q", "", "forward")
    functional = f"{TORCH}/nn/functional.py"
    attention = (FORWARD, MODEL[1], Frame(functional, "multi_head_attention_forward", 6000))
    softmax, dropout = (*attention, Frame(functional, "softmax", 2000)), (*attention, Frame(functional, "dropout", 1))
    own = {"cpu.model_compute": {f"{FILE}:20 Net.forward": 1.0}}

    def shares(*seen: tuple[Frame, ...]) -> list[float]:
        stacks = Stacks.read(jobs.stacks(1, *seen, times=300, every_s=0.01))
        return [one.share for one in find_costly(stacks, [(1, ())], [row], own, 1.0)]

    assert shares(softmax, attention, MODEL) == [pytest.approx(1 / 3, abs=0.02)]
    # It is switched off, or attention would not be fused.
    assert shares(attention, MODEL) == []
    assert shares(softmax, dropout, MODEL) == []
    # Another softmax of the same statement.
    assert shares((FORWARD, Frame(functional, "softmax", 2000)), MODEL) == []


def test_a_detour_that_only_an_earlier_version_knew_is_left_out() -> None:
    stacks = Stacks.read(jobs.stacks(1, (FORWARD, TABLE), MODEL, times=300, every_s=0.01))
    assert find_costly(stacks, [(1, ())], [again(20)], {"cpu.model_compute": LINES}, 1.0)
    assert not find_costly(stacks, [(1, ())], [again(20)._replace(way="made_again")], {"cpu.model_compute": LINES}, 1.0)
