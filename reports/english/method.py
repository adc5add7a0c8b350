"""How the numbers of one diagnosis were made: what was looked at, how often, and what that leaves open."""


def states(*, samples: int, trainers: int, workers: int, hertz: float) -> str:
    of = f"{trainers} trainer{'s' if trainers > 1 else ''}"
    others = f", and of {workers} loader worker{'s' if workers > 1 else ''} beside" if workers else ""
    return (
        f"States of threads were read from the kernel: {samples:,} samples of the main thread of {of}, some "
        f"{hertz:.0f} a second{others}."
    )


def no_stacks() -> str:
    return "Python stacks were not sampled: which code ran is known from elsewhere or not at all."


def stacks(*, processes: int, pieces: int, covered: float, missed: int) -> str:
    failed = f"; {missed:,} samples failed, since a stack changed while it was read" if missed else ""
    of = f"{processes} process{'es' if processes > 1 else ''}"
    return f"Python stacks of {of} were sampled by py-spy, in {pieces} pieces of {covered:.1f} s in all{failed}."


def machine_code(*, samples: int, hertz: int) -> str:
    return f"Machine code was looked at {samples:,} times: {hertz} times per second in which a thread ran."


def interpreter(*, samples: int) -> str:
    return f"Who holds the GIL, and whether garbage is collected, was read {samples:,} times."


def readings(*, rounds: tuple[tuple[str, int, float], ...]) -> str:
    listed = ", ".join(f"{probe} {count} times (every {every:.2g} s)" for probe, count, every in rounds)
    return f"Counters beside that: {listed}."


def marked(*, steps: int, phases: int) -> str:
    return f"{steps:,} steps, of {phases} phases, were marked from inside: where they begin and end is exact."


def counted(*, steps: int) -> str:
    return f"{steps:,} steps were counted from outside: their lengths are exact, their phases are what stacks show."


def no_steps() -> str:
    return "Steps were neither marked nor counted: phases are what stacks show, and shares are of time, not of steps."


def traced(*, traces: int, events: int) -> str:
    return f"{events:,} events were read, of {traces} trace{'s' if traces > 1 else ''}."


def drawn_anew(*, blocks: int, draws: int, low: float, high: float) -> str:
    return (
        f"Uncertainty: the {blocks} seconds of the account were drawn anew {draws} times. Nine times in ten the "
        f"first cause then takes {low:.0%} to {high:.0%} of the time."
    )
