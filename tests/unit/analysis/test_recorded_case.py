"""Numbers that accounts show of a job's code; what they do not show is absent, not denied."""

import pytest

from perfdoctor.analysis.from_recording import examine
from perfdoctor.analysis.recorded_case import measure_accounts
from perfdoctor.attribution.account import Account
from perfdoctor.attribution.share import SLEEP, all_of
from perfdoctor.causes import INPUT_PREPROCESSING, MODEL_COMPUTE
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.own_source import SourceReadOut
from perfdoctor.reports.wording import worded, worded_fixes
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import CodeLocation
from perfdoctor.timeline.processes import Process
from tests.builders import jobs


def test_numbers_of_the_code_are_absent_where_it_was_not_looked_at() -> None:
    account = Account(Process(10, 1, 0, None, "trainer", 10, 0))
    assert measure_accounts([account]) == ({}, {10: {}})
    account.add(0, 1.0, CodeLocation("data", "fetch"), [])
    account.add(0, 3.0, CodeLocation("forward"), [])
    measured = measure_accounts([account])
    assert measured.job == {}
    assert {name: number.value for name, number in measured.trainers[10].items()} == {"own_fetching": 0.25}
    account.add(0, 1.0, CodeLocation("other", "compile"), [])
    assert measure_accounts([account]).trainers[10]["own_compiling"].value == 0.2
    assert measure_accounts([account]).trainers[10]["own_recompiling"].value == 0.0
    account.interpreter = 0.8
    account.own[0] = Amounts({"cpu.python_overhead": 2.0})
    assert measure_accounts([account]).job["interpreter_code"].value == 0.8


def test_compiling_the_parts_of_a_first_step_is_not_compiling_again() -> None:
    compiling = CodeLocation("other", "compile")
    account = Account(Process(10, 1, 0, None, "trainer", 10, 0))

    for phase in ("forward", "forward", "backward", "optimizer"):  # graph breaks, and parts that compile when they run
        account.add(0, 1.0, compiling, [])
        account.add(0, 1.0, CodeLocation(phase), [])
    account.add(0, 1.0, compiling, [])
    assert account.activities.seconds["recompiling"] == 0.0
    account.add(0, 1.0, CodeLocation("backward"), [])
    account.add(0, 2.0, compiling, [])
    assert account.activities.seconds["recompiling"] == 2.0


def test_how_much_of_preparing_is_sleep() -> None:
    account = Account(Process(10, 1, 0, None, "trainer", 10, 0))
    fetching = CodeLocation("data", "fetch", "train.py:3 main")
    account.add(0, 1.0, fetching, all_of(INPUT_PREPROCESSING, fetching))
    assert "input_asleep" not in measure_accounts([account]).job
    account.add(0, 3.0, fetching, all_of(INPUT_PREPROCESSING, fetching, SLEEP))
    account.add(0, 4.0, CodeLocation("forward"), all_of(MODEL_COMPUTE, CodeLocation("forward")))
    assert measure_accounts([account]).job["input_asleep"].value == 0.75


LOADERS = "/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
STARTING = Frame(LOADERS, "_MultiProcessingDataLoaderIter.__init__", 9)


@pytest.mark.parametrize(("ended_s", "least"), [(None, False), (9.0, True)])
def test_a_first_start_of_workers_may_be_the_only_one(ended_s: float | None, least: bool) -> None:
    """Only workers that end are started anew."""
    trainer = [*jobs.process(10), *jobs.thread(10, 10, "R", run=1.0)]
    turns = [(jobs.OWN, STARTING), (jobs.OWN, jobs.MODULE)]
    worker = [
        *jobs.process(20, parent=10, forked=True, started_s=2.0, ended_s=ended_s),
        *jobs.thread(20, 20, "S", name="pt_data_worker"),
    ]
    with jobs.recorded([*trainer, *worker, *jobs.stacks(10, *turns)]) as recording:
        found = {one.cause: one for one in examine(recording).findings}["cpu.worker_startup"]
    assert ("not seen to come again" not in worded(found.summary)) is least


@pytest.mark.parametrize("reads_out", [False, True])
def test_of_what_only_reads_values_out_nothing_is_told_of_averages(reads_out: bool) -> None:
    torch = "/v/lib/python3.11/site-packages/torch"
    inner = [
        Frame(f"{torch}/nn/modules/module.py", "_call_impl", 1),
        Frame(f"{torch}/_tensor.py", "backward", 1),
        Frame(f"{torch}/optim/sgd.py", "step", 80),
        *[Frame("/home/me/train.py", "note", 40)] * 2,
    ]
    turns = [(Frame("/home/me/train.py", "main", line), frame) for line, frame in enumerate(inner, 10)]
    trainer = [*jobs.process(10), *jobs.thread(10, 10, run=1.0), *jobs.stacks(10, *turns, times=10, every_s=1.0)]
    code = jobs.code(10, "libtorch_cpu.so", "_ZN2at6native7DEFAULT10add_kernelEv", 800)
    source = [SourceReadOut("/home/me/train.py", 38, 41)] if reads_out else []
    with jobs.recorded([*trainer, *code, *source]) as recording:
        finding = next(one for one in examine(recording).findings if one.cause == "cpu.python_overhead")
    fix = next(one for one in worded_fixes(finding) if "more rarely" in one.title)
    assert ("average" in f"{fix.why}{fix.change}") is not reads_out
