"""What was left on that Python calls everywhere."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.machine_code import code_of_trainers
from perfdoctor.metrics.tracers import Stopped, Tracer, find_tracer, stopped_by, tracing_memory
from perfdoctor.recording.schema import TRACED_BY, Fact
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.stacks import Stacks
from tests.builders import jobs

FILE, PACKAGES = "/job/train.py", "/v/lib/python3.11/site-packages"
MAIN, WATCH = Frame(FILE, "main", 20), Frame(FILE, "count", 5)
FILES = ("nn/modules/module.py", "nn/functional.py", "optim/adam.py")
LINES = [Frame(f"{PACKAGES}/torch/{file}", "some", line) for file in FILES for line in (3, 7)]


def find(called: Frame, *below: Frame, lines: list[Frame] = LINES) -> Tracer | None:
    """What of a job is found, half of whose time is in a function called at some lines of libraries."""
    stacks = [(MAIN, line, called, *below) for line in lines]
    return find_tracer(Stacks.read(jobs.stacks(1, *stacks, *[(MAIN,)] * len(stacks), times=600, every_s=0.01)), {1})


def test_what_is_below_lines_of_libraries_everywhere_is_called_by_python() -> None:
    found = find(WATCH)
    assert found is not None
    assert found.place == f"{FILE}:5 count"
    assert found.part == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("called", "below", "lines"),
    [
        (WATCH, (), LINES[:3]),  # a layer, a hook
        (WATCH, (), [Frame(LINES[0].file, "some", line) for line in range(9)]),  # what one file calls
        (WATCH, (LINES[0],), LINES),  # it stands for functions of torch's
        (Frame(FILE, "Mode.__torch_function__", 5), (), LINES),
        (Frame(f"{PACKAGES}/coverage/pytracer.py", "count", 5), (), LINES),
    ],
)
def test_what_a_library_calls_is_no_trace_function(called: Frame, below: tuple[Frame], lines: list[Frame]) -> None:
    assert find(called, *below, lines=lines) is None


def test_a_program_that_stops_the_trainer_is_told_with_what_that_takes() -> None:
    traced = [Fact(jobs.START, "waits", "pid:1", TRACED_BY, "70 strace")]
    trainer = [*jobs.process(1), *jobs.stacks(1, (jobs.OWN,))]
    trainer += jobs.thread(1, 1, "Rt", run=1.0)
    for facts, found in ((traced, Stopped("strace", 0.5)), ([], None)):
        with jobs.recorded([*trainer, *facts]) as recording:
            assert stopped_by(JobTimeline(recording)) == (found and (found.by, pytest.approx(found.part, abs=0.01)))


@pytest.mark.parametrize(("symbol", "part"), [("tracemalloc_alloc", 0.25), ("PyObject_Malloc", None)])
def test_tracemalloc_is_known_by_its_own_functions(symbol: str, part: float | None) -> None:
    """What looks lines up counts where they are at work, and else is whoever's makes a traceback."""
    code = [
        *jobs.code(1, "libpython3.11.so.1.0", "_PyEval_EvalFrameDefault", 300),
        *jobs.code(1, "libpython3.11.so.1.0", "_PyCode_CheckLineNumber", 80),
        *jobs.code(1, "libpython3.11.so.1.0", symbol, 20),
    ]
    trainer = [*jobs.process(1), *jobs.thread(1, 1, run=1.0), *jobs.stacks(1, (jobs.OWN,))]
    with jobs.recorded([*trainer, *code]) as recording:
        assert tracing_memory(code_of_trainers(JobTimeline(recording))) == part
