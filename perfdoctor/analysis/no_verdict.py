"""When there can be no verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perfdoctor.attribution.account import Account
from perfdoctor.diagnosis import NoVerdict, Why, say
from perfdoctor.knowledge import thresholds
from perfdoctor.recording.schema import Event
from perfdoctor.timeline.code_location import TRAINING_PHASES
from perfdoctor.timeline.job import JobTimeline


def why_no_verdict(job: JobTimeline, accounts: Sequence[Account]) -> NoVerdict | None:
    """Why no bottleneck can be named; None if one can."""
    seen = job.recording.processes
    if not seen:
        return NoVerdict(Why.NOTHING_SEEN, say("verdict.nothing_seen", job_ended=_job_ended(job)))
    if not accounts:
        torch = any(process.uses_torch for process in seen.values())
        return NoVerdict(Why.NOT_TRAINING, say("verdict.no_trainer" if torch else "verdict.no_torch"))
    series = [states for account in accounts if (states := job.threads.main(account.trainer.pid)) is not None]
    if max((len(states.times_ns) for states in series), default=0) < thresholds.FEWEST_SAMPLES:
        return NoVerdict(Why.TOO_BRIEF, say("verdict.too_brief"))
    stuck = [why for account in accounts if (why := _stuck(job, account)) is not None]
    return stuck[0] if len(stuck) == len(accounts) else None


def _job_ended(job: JobTimeline) -> bool:
    return [event.text for event in job.recording.rows(Event) if event.kind == "stopped"] == ["job ended"]


def _stuck(job: JobTimeline, account: Account) -> NoVerdict | None:
    """What a main thread that never moves waits on; None if it moves."""
    pid = account.trainer.pid
    states = job.threads.main(pid)
    if states is None:
        return None
    waits = Counter(zip(states.states, states.syscalls, states.targets, strict=True))
    (state, call, target), times = waits.most_common(1)[0]
    if state == "R" or times < thresholds.STUCK * len(states.times_ns) or _moves(job, account):
        return None
    if state in ("T", "t"):
        return NoVerdict(Why.STOPPED, say("verdict.stopped", pid=pid), pid)
    line = job.observe(account.trainer, int(states.times_ns[-1])).location.line
    return NoVerdict(Why.HUNG, say("verdict.hung", pid=pid, call=call, target=target, line=line), pid)


def _moves(job: JobTimeline, account: Account) -> bool:
    """Whether a main thread that is nearly always asleep still takes steps now and then, or is being fed."""
    start, end = job.recording.start_ns, job.recording.end_ns
    states = job.threads.main(account.trainer.pid)
    if states is not None and states.use(start, end)[0] > thresholds.MOVING:
        return True
    workers = job.processes.workers_of(account.trainer.pid)
    threads = [thread for process in workers for thread in job.threads.of(process.pid)]
    worked = any(account.phases[phase] for phase in TRAINING_PHASES)
    return worked and any(thread.use(start, end)[0] > thresholds.FEEDING for thread in threads)
