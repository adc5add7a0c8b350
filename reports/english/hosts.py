"""What is said of a job on several hosts."""


def on(*, host: str, reason: str) -> str:
    return f"On {host}: {reason}"


def unseen(*, ranks: tuple[int, ...], of: int) -> str:
    named = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    subject = f"Rank {named} was" if len(ranks) == 1 else f"Ranks {named} were"
    return f"{subject} not watched, of {of}: what others wait for in them is not known."


def watch_all() -> str:
    return "perfdoctor attach --job --gather FOLDER on every host of the job, at the same time"


def clock_unknown(*, names: tuple[str, ...]) -> str:
    return (
        f"How the clock of {', '.join(names)} stands to that of the first host is taken from the time of day: too few "
        "collectives were seen to end there, or steps are too much alike to check it. Where the clocks differ by more "
        "than a step, waits are attributed to what other ranks did at another instant."
    )


def keep_clocks() -> str:
    return "keep the hosts' clocks with NTP or PTP, or watch longer"
