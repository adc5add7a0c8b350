"""What holds a job up that makes no progress: the verdict, who stands where, what to do, and what would refute it."""

from collections.abc import Sequence

from perfdoctor.reports.shared_words import OPENS, alike, by_advice, by_host, first_ranks, for_each, in_common
from perfdoctor.results.stuck import FROZEN, Halt

TITLES = {
    "stopped": "a process is stopped",
    "debugger": "a debugger holds a process",
    "terminal": "a process waits for somebody to type",
    "exception": "a rank waits in the handler of an exception",
    "exit": "a rank waits at exit",
    "lock": "a lock, queue or event is never released",
    "file_lock": "another process holds a file lock",
    "gil": "a thread keeps the GIL",
    "pipe": "the other end of a pipe does nothing",
    "socket": "the other end of a connection does not answer",
    "storage": "storage or a file server does not answer",
    "child_process": "a child process does not end",
    "sleep": "a process sleeps, or keeps looking for something that never comes",
    "loop": "a process may be in an endless loop",
    "unknown": "the reason was not seen",
    "collective_mismatch": "ranks wait in collectives that do not match",
    "missing_rank": "a rank is missing",
    "unwatched_rank": "ranks wait for ranks that were not watched",
    "rank_elsewhere": "a rank does not reach a collective",
    "gpu_wait": "all ranks wait for their GPUs",
    "network": "a collective does not finish",
    "rendezvous": "ranks cannot find each other",
}
NEXT = {
    "stopped": "Resume what was stopped: `kill -CONT {pids}`.",
    "frozen": "Thaw the control group {groups}: `docker unpause`, `systemctl thaw`, the batch system's resume; or "
    "write 0 into its cgroup.freeze (version 1: THAWED into freezer.state).",
    "debugger": "Let the debugger go on or detach it; take breakpoints out of what runs without a terminal.",
    "terminal": "Answer it on its terminal, or start the job so that it does not ask.",
    "exception": "Read the rank's log for the exception. Let the handler end the process: `torchrun` then "
    "ends the other ranks.",
    "exit": "End what waits there: `kill {pids}`. Let threads be daemons, and bound what atexit waits for.",
    "lock": "See what all threads of the process do: {dumps}. A child must not be forked while a thread holds a lock: "
    "use the start method spawn. Give waits a timeout.",
    "file_lock": "End whoever holds the lock if it is left over, or remove the lock's file.",
    "gil": "Call that function without the GIL (ctypes.CDLL and not PyDLL, Py_BEGIN_ALLOW_THREADS).",
    "pipe": "Look at the process at the other end, or find out why there is none. Read standard output and error of "
    "children, or send them to a file.",
    "socket": "Look at the server, and give the request a timeout.",
    "storage": "`cat {stacks}` shows where the kernel waits, `dmesg` what it says of the device or server.",
    "child_process": "Look at the child, and give the wait a timeout.",
    "sleep": "Look at what it waits for, and bound how often it tries.",
    "loop": "Watch again for longer. See whether variables change: {dumps_of_variables}.",
    "unknown": "See what all threads of the process do: {dumps}.",
    "collective_mismatch": "Make all ranks call the same collectives in the same order: no collective under a "
    "condition that differs by rank, and the same number of batches on each (`DistributedSampler`, `Join`).",
    "missing_rank": "Find out why that rank ended or never started: its log, `dmesg` (out of memory), the launcher. "
    "Then restart the job.",
    "unwatched_rank": "Start perfdoctor on every host of the job, each with `--recording`, and make one report of all: "
    "`perfdoctor report *.perfdoctor`. If every host was watched, those ranks have ended: look at their logs. "
    "Of dumps of the Flight Recorder, gather those of all ranks.",
    "rank_elsewhere": "While that rank still runs, `perfdoctor attach` on its host says what it is doing; its log says "
    "whether it has ended.",
    "gpu_wait": "Watch again with `--flight-recorder`, if the job was started so that it gives dumps of its "
    "collectives (`TORCH_FR_BUFFER_SIZE`, `TORCH_NCCL_DEBUG_INFO_PIPE_FILE`): they tell which one it is, and who is "
    "not in it.",
    "network": "Look at the network between the ranks: interface (GLOO_SOCKET_IFNAME, "
    "NCCL_SOCKET_IFNAME), firewall, MTU.",
    "rendezvous": "See that all ranks have the same MASTER_ADDR and MASTER_PORT, each its own RANK, and that as many "
    "are started as WORLD_SIZE says: torchrun around a script that starts its ranks itself starts them twice. Between "
    "hosts, look at the interface (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME) and the firewall.",
}
REFUTED = {
    "loop": "It soon reads, writes or reaches another function: then it is slow, not stuck.",
    "sleep": "It soon goes on: then it waits for something that comes rarely, and is not stuck.",
    "gpu_wait": "It soon goes on: then one collective or kernel takes long, and the job is slow, not stuck.",
    "missing_rank": "The rank runs on another host.",
    "unwatched_rank": "A rank that was not watched soon goes on: then the job is slow, not stuck.",
}
REFUTED_ELSE = "The job has moved on when it is watched again."


def title(*, kind: str) -> str:
    return TITLES.get(kind, kind)


def summary(*, kind: str, chain: Sequence[Halt], waiting: Sequence[Halt], ranks: Sequence[int], since_s: float) -> str:
    since = f"Nothing has moved for at least {_seconds(since_s)}." if since_s else "For how long is not known."
    return f"{_who_waits('is stuck', kind, chain, waiting, ranks)} {since}{_unseen(kind, waiting, ranks)}"


def still(*, kind: str, chain: Sequence[Halt], waiting: Sequence[Halt], ranks: Sequence[int]) -> str:
    waits = _who_waits("did not train while it was watched", kind, chain, waiting, ranks)
    return f"{waits} That was too brief to tell it from a slow step.{_unseen(kind, waiting, ranks)}"


def _who_waits(is_stuck: str, kind: str, chain: Sequence[Halt], waiting: Sequence[Halt], ranks: Sequence[int]) -> str:
    several = len({halt.rank for halt in (*chain, *waiting)}) > 1 or bool(ranks and not chain)
    if kind == "missing_rank":
        there = "is" if len(ranks) == 1 else "are"
        here = "on the hosts watched" if any(halt.host for halt in waiting) else "here"
        return f"This job {is_stuck}: {_ranks(ranks)} {there} not among its processes {here}, and {_waits(waiting)}."
    if kind == "unwatched_rank":
        return f"What is known of this job {is_stuck}: {_waits(waiting)}."
    if kind == "collective_mismatch":
        calls = _waits((*chain, *waiting), tensors=True)
        return f"This job {is_stuck}: its ranks are in calls that do not match: {calls}."
    if kind == "gpu_wait":
        return (
            f"This job {is_stuck}, or is in a very long collective: {_waits((*chain, *waiting))}, and all GPUs are "
            "busy at the power at which they wait for each other."
        )
    if kind == "network":
        return f"This job {is_stuck}: {_waits((*chain, *waiting))}, and it does not finish."
    if kind == "rendezvous":
        return f"This job {is_stuck}: {_waits((*chain, *waiting))}, and they do not find each other."
    chained = "; ".join(f"{_who(halts, several=several)} {_sits(in_common(halts))}" for halts in alike(chain))
    text = f"This job {is_stuck}: {chained}."
    return f"{text} {_first_upper(_waits(waiting))}." if waiting else text


def _unseen(kind: str, waiting: Sequence[Halt], ranks: Sequence[int]) -> str:
    """That the ranks for which others wait were not seen."""
    if kind != "unwatched_rank":
        return ""
    was = "was not watched" if len(ranks) == 1 else "were not watched"
    watched = any(halt.watched for halt in waiting)
    unseen = f"{_first_upper(_ranks(ranks))} {was}" if watched else f"There is no dump of {_ranks(ranks)}"
    return f" {unseen}: who holds the others up is not known."


def who(*, halt: Halt, several: bool) -> str:
    return _first_upper(_who((halt,), several=several))


def where(*, halt: Halt) -> str:
    sits = _first_upper(_sits(halt))
    return f"{sits}; other threads at {', '.join(halt.threads)}" if halt.threads else sits


def no_call_open(*, open_s: float) -> str:
    if open_s:
        return f"No hang is seen in these dumps: collectives are open in them for {open_s:.0f} s, which is not long."
    return "No hang is seen in these dumps: every collective in them has ended."


def next_move(*, kind: str, ends: Sequence[Halt]) -> str:
    hosts: dict[str, list[str]] = {}
    for (about, host), halts in by_advice(kind, ends).items():
        pids = [halt.pid for halt in halts]
        text = NEXT[about].format(
            pids=" ".join(map(str, pids)),
            stacks=" ".join(f"/proc/{pid}/stack" for pid in pids),
            dumps=for_each("py-spy dump --pid {}", pids, ", "),
            dumps_of_variables=for_each("py-spy dump --locals --pid {}", pids, ", "),
            groups=", ".join(dict.fromkeys(halt.target.removeprefix(FROZEN) for halt in halts)),
        )
        hosts.setdefault(text, []).append(host)
    return " ".join(f"On {', '.join(on)}: {text}" if any(on) else text for text, on in hosts.items()) or NEXT[kind]


def refuted_by(*, kind: str) -> str:
    return REFUTED.get(kind, REFUTED_ELSE)


def _seconds(amount: float) -> str:
    return f"{amount:.3g} s" if amount < 100 else f"{amount:.0f} s"


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _who(halts: Sequence[Halt], *, several: bool) -> str:
    """A process, or each of several that are alike."""
    first = halts[0]
    on = f" on {first.host}" if first.host else ""
    if len(halts) > 1 and first.own:
        listed = _processes(halts)
        return f"each of {_ranks([halt.rank or 0 for halt in halts])}{f' ({listed})' if listed else ''}"
    if len(halts) > 1:
        return f"each of their {_processes(halts)} ({first.name})"
    if not first.own:
        return f"its process {first.pid} ({first.name}){on}"
    if not first.pid:
        return f"rank {first.rank}"
    return f"rank {first.rank} (process {first.pid}{on})" if several else f"process {first.pid}{on}"


def _processes(halts: Sequence[Halt]) -> str:
    hosts = [(first_ranks(pids, ", ", " …"), host) for host, pids in by_host(halts).items()]
    listed = " and ".join(f"{pids} on {host}" if host else pids for pids, host in hosts)
    return f"processes {listed}" if listed else ""


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {first_ranks(ranks, ', ', ' …')}"


def _waits(halts: Sequence[Halt], *, tensors: bool = False) -> str:
    """Ranks by where they wait, where asked with what they have given to the collective."""
    by_place: dict[tuple[str, str], list[int]] = {}
    for halt in halts:
        given = f" with {halt.tensors}" if tensors and halt.tensors else ""
        by_place.setdefault((_sits_for_ranks(halt) + given, halt.line), []).append(halt.rank or 0)
    places = [
        f"{_ranks(ranks)} {'wait' if len(ranks) > 1 else 'waits'} {sits}{f' at {line}' if line else ''}"
        for (sits, line), ranks in by_place.items()
    ]
    return ", ".join(places)


def _sits_for_ranks(halt: Halt) -> str:
    if halt.kind == "rendezvous":
        return f"for other ranks to come{f' ({halt.collective})' if halt.collective else ''}"
    if halt.kind == "gpu_wait":
        return f"for its GPU{f' in {_call(halt)}' if halt.collective else ''}"
    return f"in {_call(halt)}" if halt.kind == "collective" else f"elsewhere ({title(kind=halt.kind)})"


def _call(halt: Halt) -> str:
    """The collective, with its number and group where they are known."""
    number = "" if halt.sequence is None else f" number {halt.sequence}"
    return f"{halt.collective or 'a collective'}{number}{f' of group {halt.group}' if halt.group else ''}"


def _sits(halt: Halt) -> str:
    return _doing(halt) + (f", at {halt.line}" if halt.line else "")


def _doing(halt: Halt) -> str:
    """What a process does in place of going on."""
    path = halt.target.partition(":")[2]
    match halt.kind:
        case "collective" | "rendezvous" | "gpu_wait":
            return f"waits {_sits_for_ranks(halt)}"
        case "rank_elsewhere":
            return f"has not got there; its last call was {_call(halt)}"
        case "stopped" if halt.target.startswith(FROZEN):
            return f"is frozen with its control group {path}"
        case "debugger":
            return f"is held by a debugger{_others(halt, ', {}')}"
        case "terminal":
            return f"waits for somebody to type on the terminal {path}".rstrip()
        case "exception":
            return f"is in the handler of a {halt.handling} and waits there{f' ({halt.call})' if halt.call else ''}"
        case "file_lock":
            return (
                f"waits for the lock of {f'the file {path}' if path else 'a file'}{_others(halt, ', which {} holds')}"
            )
        case "pipe" if halt.call in ("write", "writev", "sendfile"):
            return f"writes into a pipe{_named(path)} that nobody reads{_others(halt, '; its other end: {}')}"
        case "pipe" if halt.call in OPENS:
            return f"opens a pipe{_named(path)} that nobody opens at its other end"
        case "pipe":
            return f"waits on a pipe{_named(path)} into which nothing comes{_others(halt, '; its other end: {}')}"
        case "socket" if halt.call == "connect":
            return "tries to connect to somebody who does not answer"
        case "socket":
            return f"waits on a connection over which nothing comes{_others(halt, '; its other end: {}')}"
        case "storage":
            mapped = "a file that it has mapped" if halt.call == "fault" else "a file"
            return f"waits in {halt.call or 'the kernel'} for {f'the file {path}' if path else mapped}"
    return _DOING[halt.kind]


_DOING = {
    "stopped": "is stopped (SIGSTOP, Ctrl-Z)",
    "exit": "has finished its script and waits at exit",
    "lock": "waits for a lock, queue or event that nobody serves",
    "gil": "wants the GIL, which another of its threads holds without using it",
    "child_process": "waits for a child process to end",
    "sleep": "sleeps",
    "loop": "computes in one place of its code, reads nothing and keeps no result",
    "unknown": "does not move",
    "loader": "waits for a batch",
}


def _named(path: str) -> str:
    return f" ({path})" if path else ""


def _others(halt: Halt, text: str) -> str:
    """Who is at the other end, as far as that is known."""
    if halt.others is None:
        return ""
    itself = f"{halt.name} ({halt.pid})"
    named = ["itself" if other == itself else other for other in halt.others]
    return text.format(", ".join(named) or "nobody")
