"""Waiting for ranks of which nobody knows which one is late, or that were not watched."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import percent


def unwatched_ranks() -> str:
    return "Waiting for ranks that were not watched"


def unwatched_ranks_refuted() -> str:
    return "Watch all ranks: if none of them is late, the exchange itself takes the time."


def unknown_rank() -> str:
    return "Waiting for an unknown rank"


def unknown_rank_refuted() -> str:
    return "See when each rank comes to a collective: if all come at once, the exchange itself takes the time."


def find_late_rank(*, share: float, world: int, traced: bool) -> Fix:
    if traced:
        return Fix(
            "Find out which rank comes late",
            f"All {world} ranks were watched, and in {percent(share)} of the time some wait in collectives that were "
            "not found in the others' traces, or began before them: which one is late is not known.",
            "schedule = torch.profiler.schedule(wait=10, warmup=3, active=5)  # the same on all ranks\n"
            "# PyTorch from 2.3 on writes which process group a collective is of",
        )
    return Fix(
        "Find out which rank comes late",
        f"All {world} ranks were watched, and they wait in collectives for {percent(share)} of the time: the exchange "
        "itself may be slow, or one of them late each time.",
        "perfdoctor attach PID --trace   # shows each collective",
    )


def watch_all(*, share: float, seen: int, world: int) -> Fix:
    watched = f"{seen} of {world}" if world > seen else f"{seen}"
    return Fix(
        "Watch the other ranks too",
        f"The watched ranks wait in collectives for {percent(share)} of the time, and {watched} ranks were watched: "
        "one that was not may be late, or the exchange itself slow.",
        "perfdoctor attach PID   # on each host, at the same time; of traces: perfdoctor analyze FOLDER",
    )
