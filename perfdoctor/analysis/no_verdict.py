"""When there can be no verdict: what is missing, in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perfdoctor.attribution.account import Account
from perfdoctor.diagnosis import HUNG
from perfdoctor.recording.schema import Event
from perfdoctor.timeline.code_location import TRAINING_PHASES
from perfdoctor.timeline.job import JobTimeline

# Fewer looks at a main thread than this are no base for shares: half a second at 50 Hz.
MIN_LOOKS = 25
# A main thread that is asleep in one and the same call for more than this fraction does not train.
STUCK = 0.98
# Calls that say more by another name.
_IN_WORDS = {
    "futex": "for a lock or another thread (futex)",
    "clock_nanosleep": "in a sleep (clock_nanosleep)",
    "wait4": "for another process to end (wait4)",
}
_ON = {
    "pipe": "a pipe",
    "socket:tcp": "a network connection",
    "socket:udp": "a network connection",
    "socket:unix": "a socket of this host",
}
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")


def why_silent(job: JobTimeline, accounts: Sequence[Account]) -> str:
    """Why no bottleneck can be named; "" if one can."""
    seen = job.recording.processes
    if not seen:
        return f"{_what_ended(job)} ended before anything could be seen."
    if not accounts:
        if not any(process.uses_torch for process in seen.values()):
            return "None of the job's processes has PyTorch loaded, so there is no training step to look at."
        return "No process of the job was seen training."
    looks = [
        timeline for account in accounts if (timeline := job.threads.main(account.trainer.pid)) is not None
    ]
    if not looks or max(len(timeline.times_ns) for timeline in looks) < MIN_LOOKS:
        return "The job was seen too briefly to tell; watch longer (--duration), or more steps (steps=)."
    stuck = [text for account in accounts if (text := _stuck(job, account))]
    return stuck[0] if len(stuck) == len(accounts) else ""


def _what_ended(job: JobTimeline) -> str:
    reasons = [event.text for event in job.recording.rows(Event) if event.kind == "stopped"]
    return "The job" if reasons == ["job ended"] else "The watching"


def _stuck(job: JobTimeline, account: Account) -> str:
    """What a main thread that never moves waits on; "" if it moves."""
    timeline = job.threads.main(account.trainer.pid)
    if timeline is None:
        return ""
    waits = Counter(zip(timeline.states, timeline.syscalls, timeline.targets, strict=True))
    (state, call, target), times = waits.most_common(1)[0]
    if state == "R" or times < STUCK * len(timeline.times_ns) or _moves(job, account):
        return ""
    if state in ("T", "t"):
        pid = account.trainer.pid
        state = f"process {pid} is stopped by a signal or a debugger; `kill -CONT {pid}` lets it go on"
        return f"The job does not train: {state}."
    location = job.observe(account.trainer, int(timeline.times_ns[-1])).location
    line = f", at {location.line}" if location.line else ""
    return f"{HUNG} {account.trainer.pid} has been waiting {_wait(call, target)} all the time{line}."


def _wait(call: str | None, target: str) -> str:
    """What a system call waits on, in words."""
    if not call:
        return "in an unknown call"
    if call in _IN_WORDS:
        return _IN_WORDS[call]
    kind, _, name = target.partition(":")
    if target in _ON:
        return f"on {_ON[target]} ({call})"
    if name.startswith(_TERMINALS):
        return f"on the terminal {name} ({call})"
    return f"in {call}" + (f" on {name if kind == 'file' else target}" if target else "")


def _moves(job: JobTimeline, account: Account) -> bool:
    """Whether a main thread that is nearly always asleep still takes steps now and then, or is being fed."""
    phases = account.phases
    worked = sum(phases[phase] for phase in TRAINING_PHASES) / (account.seconds or 1.0)
    timeline = job.threads.main(account.trainer.pid)
    used = timeline.use(job.recording.start_ns, job.recording.end_ns)[0] if timeline is not None else 0.0
    if used > 0.002:
        return True
    busy = [
        thread
        for process in job.processes.workers_of(account.trainer.pid)
        for thread in job.threads.of(process.pid)
    ]
    return worked > 0 and any(
        thread.use(job.recording.start_ns, job.recording.end_ns)[0] > 0.05 for thread in busy
    )
