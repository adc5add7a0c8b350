"""A profiler or a trace function of the job's own that was left on."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import percent


def record_few_steps(*, share: float) -> Fix:
    return Fix(
        "Let torch.profiler record a few steps only",
        f"It takes {percent(share)} of the time to sort and write what it has recorded; recording each operator slows "
        "down all steps besides.",
        "torch.profiler.profile(..., schedule=torch.profiler.schedule(wait=10, warmup=1, active=3, repeat=1))\n"
        "# one cycle: without repeat=1 there is always a next one; profiler.step() belongs at the end of each step",
    )


def stop_tracing(*, line: str, share: float) -> Fix:
    return Fix(
        "Run without the trace function",
        f"{line} is on the stack below lines of libraries everywhere, which do not call it: Python does, at each "
        f"line or call (sys.settrace, sys.setprofile). It takes {percent(share)} of the time, and slows down all "
        "Python besides.",
        "sys.settrace(None)  # before training, or do not set it\nsys.setprofile(None)  # likewise",
    )


def stop_tracing_memory(*, share: float) -> Fix:
    return Fix(
        "Run without tracemalloc",
        f"{percent(share)} of the time it notes down where memory is asked for, at each object that Python makes. It "
        "is for finding leaks.",
        "tracemalloc.stop()",
    )
