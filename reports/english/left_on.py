"""What is for debugging, and was left on: profilers, trace functions, debuggers, checks, variables."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import percent

_DEBUGGING = {
    "TORCH_DISTRIBUTED_DEBUG": "Its DETAIL level checks every collective against all ranks.",
    "PYTHONDEVMODE": "The interpreter then checks memory, warnings and more at every step.",
    "PYTHONTRACEMALLOC": "Every allocation of Python is then traced.",
    "PYTHONMALLOC": "Python then checks each piece of memory, and mostly takes it from a slower allocator.",
    "PYTORCH_JIT_LOG_LEVEL": "Logging of the compiler costs time in every call.",
}


def no_collective_checks() -> Fix:
    return Fix(
        "Unset TORCH_DISTRIBUTED_DEBUG",
        f"{_DEBUGGING['TORCH_DISTRIBUTED_DEBUG']} Before each exchange they send each other what it is, and wait: 2 to "
        "3 ms each time.",
        "unset TORCH_DISTRIBUTED_DEBUG",
    )


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


def stop_tracer(*, tracer: str, share: float) -> Fix:
    return Fix(
        f"Run without {tracer}",
        f"{percent(share)} of the time the main thread is stopped by {tracer}, which looks at each of its system calls "
        "(ptrace).",
        "python train.py   # without it; with perfdoctor attach PID nothing has to run in the job",
    )


def stop_tracing_memory(*, share: float) -> Fix:
    return Fix(
        "Run without tracemalloc",
        f"{percent(share)} of the time it notes down where memory is asked for, at each object that Python makes. It "
        "is for finding leaks.",
        "tracemalloc.stop()",
    )


def no_memory_metrics(*, share: float) -> Fix:
    return Fix(
        "Train without the memory metrics of transformers' Trainer",
        f"They are measured by a thread that asks again and again, without a pause, and takes the GIL from the trainer "
        f"for {percent(share)} of the time.",
        "TrainingArguments(..., skip_memory_metrics=True)  # as it is by default",
    )


def debugging(*, name: str) -> str:
    return _DEBUGGING[name]


def no_anomaly_detection() -> Fix:
    return Fix(
        "Turn anomaly detection off",
        "Tracebacks are formatted all the time, as autograd's anomaly detection does for every operator of the forward "
        "pass; it also looks for NaN in every gradient.",
        "torch.autograd.set_detect_anomaly(False)  # Lightning: Trainer(detect_anomaly=False)",
    )


def stop_watching(*, watcher: str) -> Fix:
    return Fix(
        f"Run without {watcher}",
        f"Its frames are on the stack: {watcher} watches each call or line of Python, which costs more than most calls "
        "do.",
        "python train.py   # without it; with perfdoctor attach PID nothing has to run in the job",
    )
