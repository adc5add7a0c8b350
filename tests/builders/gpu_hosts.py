"""A job on one GPU, as it is seen from outside: what its host runs, and what its driver says."""

from collections.abc import Mapping

from perfdoctor.attribution.account import Account
from perfdoctor.attribution.attribute import attribute
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import CODE_FREQUENCY, Sample
from tests.builders import jobs

PID = 100
FORWARD = (jobs.OWN, jobs.MODULE)
BACKWARD = (jobs.OWN, Frame("/v/lib/python3.11/site-packages/torch/autograd/graph.py", "_engine_run_backward", 9))
LOOP = (Frame(jobs.OWN.file, jobs.OWN.function, 9),)
# Machine code by what it is: image and symbol.
SPIN, DRIVER = ("[vdso]", ""), ("libcuda.so.1", "~")
DISPATCH, PYTHON = ("libc10.so", "_ZN3c1010TensorImplC1Ev"), ("python3.11", "_PyEval_EvalFrameDefault")
HSA = ("libhsa-runtime64.so.1", "_ZN4rocr4core15InterruptSignal11WaitRelaxedE22hsa_signal_condition_tlm")


def gpu_job(
    states: str = "R",
    code: Mapping[tuple[str, str], float] | None = None,
    stacks: tuple[tuple[Frame, ...], ...] = (FORWARD,),
    pid: int = PID,
    gpu: int = 0,
    call: str = "futex",
    target: str = "",
    rank: dict[str, str] | None = None,
    **levels: float,
) -> list[Sample]:
    """A trainer on a GPU: its main thread's states, what it runs as fractions of its time, and readings of the GPU."""
    samples = [
        *jobs.process(pid, **(rank or {})),
        *jobs.thread(pid, pid, states, run=states.count("R") / len(states), call=call, target=target),
        *jobs.thread(pid + 1, pid, "S", name="cuda-EvtHandlr", call="poll"),
        *jobs.stacks(pid, *stacks),
        *jobs.named(pid, pid, 1),
    ]
    for (image, symbol), part in (code or {}).items():
        samples += jobs.code(pid, image, symbol, round(part * CODE_FREQUENCY * jobs.SECONDS))
    for name, level in levels.items():
        samples += jobs.readings(f"gpu:{gpu}", name, *[level] * 20, every_s=0.5, probe="gpu")
    return [*samples, *jobs.readings(f"gpu:{gpu}/pid:{pid}", "memory_bytes", 1e9, 1e9, probe="gpu")]


def accounts_of(samples: list[Sample]) -> list[Account]:
    return attribute(jobs.timeline([*jobs.readings("host", "usable_cores", 8.0), *samples]))


def shares(samples: list[Sample]) -> dict[str, float]:
    return accounts_of(samples)[0].causes().fractions()
