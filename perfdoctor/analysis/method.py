"""How the numbers of one diagnosis came about: what was looked at how often in this job, and what that leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from perfdoctor.attribution.account import Account
from perfdoctor.diagnosis import Verdict
from perfdoctor.messages import Text, say
from perfdoctor.recording.clock import NS_PER_S, seconds
from perfdoctor.recording.schema import CODE_FREQUENCY, CodeSample, InterpreterSample, StackMissed, StackSegment
from perfdoctor.rules.confidence import share_ranges
from perfdoctor.rules.resampling import RESAMPLES
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.machine_code import stopped_s

# A reading by which each probe's rounds are counted; the second one where a system or a job has no first.
_ROUNDS = {
    "cpu": (("job", "cpu_seconds_total"),),
    "memory": (("host", "memory_total_bytes"),),
    "io": (("job", "read_calls_total"),),
    "network": (("network", "received_bytes_total"), ("interface:lo", "received_bytes_total")),
    "gpu": (("gpu:0", "busy_fraction"), ("gpu:0", "memory_used_bytes")),
}


def how_made(job: JobTimeline, accounts: Sequence[Account], verdict: Verdict) -> Iterator[Text]:
    """What was looked at, how often and in which way, then how steps are known, then how sure the first cause is."""
    yield from _states(job)
    yield from _stacks(job)
    yield from _machine_code(job)
    yield from _readings(job)
    yield from _steps(job)
    yield from _uncertainty(accounts, verdict)


def _states(job: JobTimeline) -> Iterator[Text]:
    trainers = [trainer.pid for trainer in job.processes.trainers]
    workers = [worker.pid for pid in trainers for worker in job.processes.workers_of(pid)]
    times = [job.threads.main_times(pid) for pid in trainers]
    gaps = np.concatenate([np.diff(of) for of in times]) if times else np.array([])
    if len(gaps):
        samples = sum(map(len, times))
        hertz = NS_PER_S / float(np.median(gaps))
        yield say("method.states", samples=samples, trainers=len(trainers), workers=len(workers), hertz=hertz)


def _stacks(job: JobTimeline) -> Iterator[Text]:
    begins, ends, pids = job.recording.columns(StackSegment, "time_ns", "until_ns", "pid")
    if not pids:
        yield say("method.no_stacks")
        return
    covered, (missed,) = seconds(sum(ends) - sum(begins)), job.recording.columns(StackMissed, "time_ns")
    yield say("method.stacks", processes=len(set(pids)), pieces=len(pids), covered=covered, missed=len(missed))


def _machine_code(job: JobTimeline) -> Iterator[Text]:
    (times,) = job.recording.columns(CodeSample, "time_ns")
    stopped = stopped_s(job.recording)
    if times and stopped is not None:
        yield say("method.machine_code_by_stops", samples=len(times), stopped=stopped)
    elif times:
        yield say("method.machine_code", samples=len(times), hertz=CODE_FREQUENCY)
    (times_ns,) = job.recording.columns(InterpreterSample, "time_ns")
    if times_ns:
        yield say("method.interpreter", samples=len(times_ns))


def _readings(job: JobTimeline) -> Iterator[Text]:
    series = job.recording.series
    rounds = []
    for probe, names in _ROUNDS.items():
        times = next((series[name][0] for name in names if len(series.get(name, ([], []))[0]) > 1), None)
        if times is not None:
            rounds.append((probe, len(times), seconds(float(np.median(np.diff(times))))))
    if rounds:
        yield say("method.readings", rounds=tuple(rounds))


def _steps(job: JobTimeline) -> Iterator[Text]:
    """How the steps of trainers are known."""
    marked = [steps for steps in job.steps.values() if steps.all]
    if marked:
        yield say("method.marked", steps=sum(len(steps.all) for steps in marked), phases=len(marked[0].by_phase))
    elif job.counted:
        yield say("method.counted", steps=sum(len(one.steps.all) for one in job.counted.values()))
    elif job.processes.trainers:
        yield say("method.no_steps")


def _uncertainty(accounts: Sequence[Account], verdict: Verdict) -> Iterator[Text]:
    """Between which shares the first cause lies when the seconds that were watched are drawn anew."""
    blocks = len(set().union(*(account.block_numbers for account in accounts))) if accounts else 0
    found = share_ranges(accounts).get(verdict.cause) if verdict.cause else None
    if found is not None:
        yield say("method.drawn_anew", blocks=blocks, draws=RESAMPLES, low=found[0], high=found[1])
