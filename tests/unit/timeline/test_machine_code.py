"""Samples of machine code: their kinds, by names that may have been looked up later, and whose they are."""

from perfdoctor.recording.schema import CodeSample, Symbol
from perfdoctor.timeline.machine_code import CodeSamples
from tests.builders import jobs

PID, OTHER = 10, 11
KERNEL = "_ZN2at6native7DEFAULT9vectorizeEv"


def samples() -> CodeSamples:
    """Three of one thread, one of another; of two the name was looked up afterwards."""
    taken = [
        CodeSample(jobs.at(3), PID, "libtorch_cpu.so", 8, ""),
        CodeSample(jobs.at(1), PID, "libpython3.11.so.1.0", 1, ""),
        CodeSample(jobs.at(2), OTHER, "libtorch_cpu.so", 9, ""),
        CodeSample(jobs.at(4), PID, "libtorch_cpu.so", 9, KERNEL),
    ]
    names = [Symbol("libtorch_cpu.so", 8, KERNEL), Symbol("libtorch_cpu.so", 9, "_ZN2at4_ops3add4callEv")]
    with jobs.recorded([*taken, *names]) as recording:
        return CodeSamples.read(recording)


def test_kinds_come_in_order_of_time_and_by_the_name_that_was_sampled_first() -> None:
    assert samples().times_ns.tolist() == [jobs.at(seconds) for seconds in (1, 2, 3, 4)]
    assert samples().kinds.tolist() == ["interpreter", "dispatch", "kernel", "kernel"]


def test_those_of_a_thread_a_kind_and_a_span_are_found() -> None:
    assert samples().of(PID).of_kind("kernel").times_ns.tolist() == [jobs.at(3), jobs.at(4)]
    assert len(samples().of(PID).within(jobs.at(1), jobs.at(3))) == 2


def test_a_thread_takes_the_place_of_another() -> None:
    found = samples().renamed({OTHER: PID}, without={PID})
    assert (found.tids.tolist(), found.kinds.tolist()) == ([PID], ["dispatch"])


def test_walks_over_elements_are_arithmetic_where_reductions_are_set_up_for_each_number() -> None:
    walk = CodeSample(jobs.at(1), PID, "libtorch_cpu.so", 1, "_ZN2at10DimCounter9incrementERKSt5arrayIlLm2EE")
    by_number = CodeSample(jobs.at(2), PID, "libtorch_cpu.so", 2, "_ZN2at18TensorIteratorBaseC2ERKS0_")
    with jobs.recorded([walk]) as alone, jobs.recorded([walk, by_number]) as together:
        assert CodeSamples.read(alone).kinds.tolist() == ["dispatch"]
        assert CodeSamples.read(together).kinds.tolist() == ["kernel", "kernel"]


def test_where_pytorchs_functions_have_no_names_nothing_is_told_of_them() -> None:
    """All of them would look like arithmetic."""
    taken = [CodeSample(jobs.at(at), PID, "libtorch_cpu.so", at, "") for at in range(1, 6)]
    python = CodeSample(jobs.at(6), PID, "libpython3.11.so.1.0", 1, "")
    named = [Symbol("libtorch_cpu.so", at, KERNEL) for at in range(1, 6)]
    for names, kinds in ((named[:2], 0), (named[:4], 6)):
        with jobs.recorded([*taken, python, *names]) as recording:
            assert len(CodeSamples.read(recording)) == kinds
