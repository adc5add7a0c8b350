"""Jobs of many ranks and hosts: which of their files were not read, and what summaries leave out."""

from perfdoctor.reports.text import duration


def left_out(*, files: tuple[str, ...], more: int, reason: str) -> str:
    rest = f" and {more} more" if more else ""
    return f"Left out: {', '.join(files)}{rest}. {reason.rstrip('.')}."


def mend_files() -> str:
    return "record or copy these anew, and repeat the command: only they are read then"


def last_collectives() -> str:
    return (
        "Some ranks have more collectives than a summary holds: only their last ones are compared across ranks. "
        "Waiting in the others is taken to be for the same ranks."
    )


def fewer_steps() -> str:
    return "profile fewer steps; up to 16 traces are compared as a whole"


def missing_ranks(*, ranks: tuple[tuple[int, int], ...], more: int, seen: int, world: int) -> str:
    named = ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in ranks)
    rest = f" and {more} more gaps" if more else ""
    missing = f" Missing: {named}{rest}." if named else ""
    return f"{seen} of {world} ranks were seen: waiting for the others is not followed.{missing}"


def all_traces() -> str:
    return "give the traces of all ranks: perfdoctor analyze FOLDER"


def silent_host(*, host: str, why: str) -> str:
    return f"Host {host} is left out: {why}"


def ranks_by_host(*, hosts: tuple[str, ...], more: int) -> str:
    where = _listed(hosts, more)
    if not where:
        return "No launcher numbers the ranks: they are numbered host by host, in the order of the hosts' names."
    return f"No launcher numbers the ranks on {where}: they get the numbers that are left, host by host."


def ranks_by_start() -> str:
    return (
        "Nothing says which rank each process is, no variable and nothing that torch keeps in its memory: they are "
        "numbered in the order of their start."
    )


def set_rank() -> str:
    return "start the job with torchrun, or set RANK and WORLD_SIZE"


def twice(*, ranks: tuple[int, ...]) -> str:
    named = ", ".join(map(str, ranks[:10]))
    return f"On two hosts there are recordings of the same ranks ({named}): each counts where it was recorded last."


def one_run() -> str:
    return "keep the recordings of one run in a folder of their own"


def older(*, sources: tuple[str, ...], host: str) -> str:
    return f"{', '.join(sources)}: an older recording of the same ranks on host {host}. It is left out."


def versions(*, what: str, usual: str, others: tuple[tuple[str, str], ...], more: int) -> str:
    named = ", ".join(f"{host} {version}" for host, version in others)
    rest = f" and {more} more hosts" if more else ""
    return f"Hosts differ in their version of {what}: most have {usual}, but {named}{rest}."


def one_version() -> str:
    return "install the same version everywhere, and record again"


def apart(*, early: str, late: str, seconds: float) -> str:
    return (
        f"By their hosts' clocks {late} begins {duration(seconds)} after {early} ends: if these are right, what the "
        "ranks did is compared although it was never at the same time."
    )


def at_once() -> str:
    return "attach on all hosts at the same time, and keep their clocks with NTP or PTP"


def no_common_clock() -> str:
    return (
        "Hosts are compared by how long their ranks wait, not instant by instant: waiting that all ranks have alike "
        "may be the exchange itself, or a late rank that changes from step to step."
    )


def attach_trace() -> str:
    return "profiler traces of all ranks in one folder, and perfdoctor analyze FOLDER: collectives set their clocks"


def numbers_of(*, host: str) -> str:
    return f"Shares are of all hosts; measured numbers, files and lines in the findings are of host {host}."


def report_host() -> str:
    return "perfdoctor report RECORDING, for each of the others"


def not_drawn() -> str:
    return "What ranks did over time is drawn from the recording of a single host: perfdoctor report RECORDING."


def on_some(*, reason: str, hosts: tuple[str, ...], more: int) -> str:
    return f"On {_listed(hosts, more)}: {reason}"


def _listed(hosts: tuple[str, ...], more: int) -> str:
    return ", ".join(hosts) + (f" and {more} more" if more else "")
