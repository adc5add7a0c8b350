"""What was not examined, and what would enable it."""


def watch_longer() -> str:
    return "watch longer with --duration to get as many samples"


def none_kept() -> str:
    return "the watching ended before any stacks were kept"


def no_stacks(*, reason: str) -> str:
    return (
        f"{reason.rstrip('.')}. Without stacks it is not known whether Python code prepares the input or calls the "
        "model, nor at which lines; that time stays unattributed."
    )


def no_code(*, reason: str) -> str:
    return (
        f"{reason.rstrip('.')}. Without machine code, calls of operators look like arithmetic: a job of many small "
        "operators seems to have no bottleneck."
    )


def no_names() -> str:
    return (
        "The functions of PyTorch's libraries have no names: their files could not be opened, or perfdoctor was killed"
    )


def open_files() -> str:
    return "run perfdoctor as root, or where the job runs (in its container), and let it end by itself"


def gpu_untraced(*, tried: bool) -> str:
    rest = (
        "On GPUs of this generation 14 of the first 19 verdicts were right at the first attempt, so confidence is at "
        "most 70%."
        if tried
        else "These estimates rest on published facts and a simulation, not yet on runs on such a GPU, so confidence "
        "is at most 60%."
    )
    return (
        "Which kernels a GPU ran and what it waited for cannot be seen from outside: it is estimated from how the host "
        f"waits and from the driver's counters. {rest}"
    )


def gpu_use_unread() -> str:
    return (
        "How busy a GPU of the job was could not be read; it is inferred from how long the host waits for it. What "
        "else holds the host up is seen all the same, but whether the GPU works or idles is an estimate: confidence in "
        "a verdict about that is at most 45%."
    )


def trace_it() -> str:
    return (
        "perfdoctor attach PID --trace: a few steps under torch.profiler show each kernel, copy, launch and wait, and "
        "why the GPU idles"
    )


def around_training(*, before_s: float, after_s: float) -> str:
    before = f"{before_s:.3g} s before the job trained" if before_s > 0 else ""
    after = f"{after_s:.3g} s after it had ended its training" if after_s > 0 else ""
    return f"{' and '.join(filter(None, (before, after)))} were watched too: they are in no share."


def watch_training() -> str:
    return "attach while the job trains; py-spy record -- python ... shows what its start takes"


def between_steps(*, seconds: float, share: float, rank: int | None, line: str | None) -> str:
    of_rank = "" if rank is None else f" of rank {rank}"
    most = f", most of them at {line}" if line else ""
    return (
        f"{seconds:.3g} s{of_rank}, {share:.0%} of the observed time, passed between training steps, in a validation "
        f"for instance{most}. No step is charged with them, and they are in no share."
    )


def validate_less() -> str:
    return "validate less often, or on less, if that is too much; `perfdoctor attach PID` counts all time"


def several_in_one(*, passes: int) -> str:
    return (
        f"Each `with diagnose():` held about {passes} backward passes, and neither a loader nor an optimizer of "
        "torch's that would separate steps: all of it counts as one step. Shares are not affected."
    )


def one_step_each() -> str:
    return "put the `with` around one step, or call step() of what it gives where a step ends"


def rule_failed(*, name: str, value: str, error: str, text: str) -> str:
    return f"The rule {name} ({value}) failed: {error}{f': {text}' if text else ''}."


def repair_rule() -> str:
    return "Repair the package that provides it, or uninstall it."


def operations_only() -> str:
    return "The table shows operations, not what the host does: pauses between them are not attributed."


def profile_a_rank() -> str:
    return "profile a rank with torch.profiler, and perfdoctor analyze its trace"
