"""Live views of a job, as reports draw them."""

from dataclasses import replace

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.results.view import (
    DeviceView,
    GpuView,
    HostView,
    LinkView,
    PathView,
    ProcessView,
    ThreadActivity,
    ThreadView,
    View,
)

GB = 1024.0**3


def thread(
    tid: int, state: ThreadActivity = ThreadActivity.RUNNING, *, cores: float | None = 0.9, call: str = "", on: str = ""
) -> ThreadView:
    return ThreadView(tid, f"thread {tid}", state, call, on, cores, 0.05, 0.0)


def process(
    pid: int,
    role: str = "trainer",
    *,
    rank: int | None = None,
    cores: float | None = 0.9,
    command: str = "python train.py",
) -> ProcessView:
    main = thread(pid, cores=cores)
    return ProcessView(
        pid=pid,
        role=role,
        rank=rank,
        command=command,
        age_s=75.0,
        main=main,
        threads=(main, thread(pid + 1, ThreadActivity.BLOCKED, cores=0.1, call="read", on="file:/data/part-1")),
        thread_count=9,
        cores=cores,
        memory=2 * GB,
        shared_memory=None,
        read=3e6,
        write=0.0,
        called=5e6,
        faults=0.0,
        gpus=(),
        gpu_memory=None,
        steps=None,
    )


def gpu(name: str = "gpu:0") -> GpuView:
    """One of which not everything can be read."""
    return GpuView(name, 0.72, 0.4, 0.2, None, 30 * GB, 80 * GB, 410, 700, 61, 1.7e9, 1.98e9, 1e9, 2e9)


HOST = HostView(
    usable=4.0,
    job=2.5,
    neighbours=0.4,
    perfdoctor=0.04,
    delayed=1.2,
    throttled=None,
    cpu_pressure=0.3,
    memory_pressure=None,
    io_pressure=0.1,
    job_memory=5 * GB,
    memory_limit=None,
    memory_total=16 * GB,
    memory_available=9 * GB,
    page_cache=3 * GB,
    swap_used=0.0,
    swapped=0.0,
)


def view(*processes: ProcessView, diagnosis: Diagnosis | None = None) -> View:
    """A job that is being recorded, for 42 s so far."""
    return View(
        at_s=42.0,
        length_s=42.0,
        live=True,
        silent_s=0.0,
        pid=100,
        host_name="node7",
        processes=processes or (process(100), process(200, "worker", cores=0.3)),
        host=HOST,
        devices=(DeviceView("vda", 12e6, 0.0, 230.0, 0.0012, 0.45),),
        paths=(PathView("/data/part-1", 0.8, 0.6, "read"),),
        links=(LinkView("eth0", 1e6, 2e5, 1e10),),
        on_network=0.0,
        gpus=(),
        diagnosis=diagnosis,
        diagnosed_s=(4.0, 34.0),
        missing=(),
    )


def finished(one: View) -> View:
    """The same when the recording is whole."""
    return replace(one, live=False)
