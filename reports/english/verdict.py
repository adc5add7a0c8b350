"""What a verdict says beside its finding, and why there is none."""

from perfdoctor.reports.shared_words import first_ranks


def most(*, cause: str) -> str:
    return f"Most of the time goes into {cause}."


def confirmed(*, verdict: str, saved: float, more: bool) -> str:
    text = f"{verdict} A trial confirms it: on a batch kept in memory, a step took {saved:.0%} less."
    return f"{text} That is more than its share, since making the input also slows down the rest." if more else text


def doubted(*, verdict: str, saved: float) -> str:
    less = f"{saved:.0%} less" if saved > 0 else "no less"
    return f"{verdict} But in a trial on a batch kept in memory, a step took {less} time."


def unattributed() -> str:
    return "Too much of the time could not be attributed to name a cause."


def late_rank(*, rank: int, waits: float) -> str:
    return (
        f"Rank {rank} comes late: the other ranks wait for it for {waits:.0%} of the time. What it does meanwhile is "
        "not in its trace, which shows neither operators nor GPU work then."
    )


def slow_rank(*, rank: int, slowdown: float) -> str:
    return f"Rank {rank} computes more slowly than its peers, and all others wait for it{_if_equal(slowdown)}"


def heavy_stage(*, stage: int, ranks: tuple[int, ...], slowdown: float) -> str:
    named = first_ranks(ranks, ", ", " …")
    return f"Stage {stage} of the pipeline has more work than the others (ranks {named}){_if_equal(slowdown)}"


def changing_ranks(*, slowdown: float, stages: bool) -> str:
    if stages:
        return f"Stages of the pipeline wait for each other by turns{_if_equal(slowdown)}"
    return f"The work of the ranks is unequal, and the slowest is not always the same{_if_equal(slowdown)}"


def _if_equal(slowdown: float) -> str:
    return f": with equal ranks, steps would be {slowdown:.2f} times as fast."


def nothing_seen(*, job_ended: bool) -> str:
    return f"{'The job' if job_ended else 'The watching'} ended before anything could be seen."


def no_torch() -> str:
    return "None of the job's processes has PyTorch loaded, so there is no training step to look at."


def no_trainer() -> str:
    return "No process of the job was seen training."


def too_brief() -> str:
    return "The job was seen too briefly to tell; watch longer (--duration), or more steps (steps=)."


def start_or_end(*, ended: bool) -> str:
    seen = "had stopped training" if ended else "had not begun to train"
    return (
        f"When it was watched, the job {seen}, or it trained too briefly to tell: what comes before its first step and "
        "after its last is no training."
    )
