"""What is said of a job on several hosts."""


def watch_all() -> str:
    return "perfdoctor attach --job --gather FOLDER on every host of the job, at the same time"


def clock_unknown(*, names: tuple[str, ...]) -> str:
    return (
        f"How far the clock of {', '.join(names)} is from that of the first host is taken from the time of day: too "
        "few collectives were seen to end there, or steps are too much alike to check it. Where the clocks differ by "
        "more than a step, waits are attributed to what other ranks did at another instant."
    )


def keep_clocks() -> str:
    return "keep the hosts' clocks with NTP or PTP, or watch longer"
