"""How the numbers of one diagnosis were made: what was looked at, how often, and what that leaves open."""


def states(*, samples: int, trainers: int, workers: int, hertz: float) -> str:
    of = f"{trainers} trainer{'s' if trainers > 1 else ''}"
    others = f", and of {workers} loader worker{'s' if workers > 1 else ''}" if workers else ""
    return (
        f"Thread states were read from the kernel: {samples:,} samples of the main thread of {of}, about "
        f"{hertz:.0f} a second{others}."
    )


def no_stacks() -> str:
    return "Python stacks were not sampled: which code ran is known from elsewhere or not at all."


def stacks(*, processes: int, pieces: int, covered: float, missed: int) -> str:
    failed = f"; {missed:,} failed because the stack changed while it was being read" if missed else ""
    of = f"{processes} process{'es' if processes > 1 else ''}"
    return f"Python stacks of {of} were sampled in {pieces} stretches of {covered:.1f} s in total{failed}."


def machine_code(*, samples: int, hertz: int) -> str:
    return f"Native code was sampled {samples:,} times: {hertz} times for each second that a thread ran."


def machine_code_by_stops(*, samples: int, stopped: float) -> str:
    took = f"all these stops took {stopped:.2g} s, threads of all processes together"
    return f"Native code was sampled {samples:,} times, by stopping a running thread for a moment; {took}."


def interpreter(*, samples: int) -> str:
    return f"Who held the GIL, and whether garbage was being collected, was read {samples:,} times."


def readings(*, rounds: tuple[tuple[str, int, float], ...]) -> str:
    listed = ", ".join(f"{probe} {count} times (every {every:.2g} s)" for probe, count, every in rounds)
    return f"Other counters: {listed}."


def marked(*, steps: int, phases: int) -> str:
    return f"{steps:,} steps with {phases} phases were marked from inside: where they begin and end is exact."


def counted(*, steps: int) -> str:
    return f"{steps:,} steps were counted from outside: their lengths are exact, their phases are inferred from stacks."


def no_steps() -> str:
    return (
        "Steps were neither marked nor counted: phases are inferred from stacks, and shares are of time, not of steps."
    )


def traced(*, traces: int, events: int) -> str:
    return f"{events:,} events were read from {traces} trace{'s' if traces > 1 else ''}."


def without_profiler(*, recording: float, shorter: float, step_ms: float | None) -> str:
    step = "" if step_ms is None else f": a step takes {step_ms:.1f} ms instead of {step_ms / (1 - shorter):.1f}"
    return (
        f"By estimate the profiler itself took {recording:.0%} of the time on the host. All shares and gains are those "
        f"of the job without it, which would be {shorter:.0%} shorter{step}."
    )


def drawn_anew(*, blocks: int, draws: int, low: float, high: float) -> str:
    return (
        f"Uncertainty: the {blocks} seconds of the account were resampled {draws} times. In nine out of ten draws the "
        f"first cause takes {low:.0%} to {high:.0%} of the time."
    )
