"""What was not examined, and why no bottleneck can be named: what probes could not see, and what was too little."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from perfdoctor.attribution.account import Account
from perfdoctor.diagnosis import NotExamined, NoVerdict, Why
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.user_frames import HINT, user_frames
from perfdoctor.messages import say
from perfdoctor.metrics.by_function import by_function
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.recording.schema import THINNED, CodeSample, Event, Unavailable
from perfdoctor.results.stuck import Stuck
from perfdoctor.rules.case import Case
from perfdoctor.rules.confidence import gpu_use_is_read, knows_such_gpus
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.steps import Steps

_HOSTS_NAMED = 5  # of those on which something was not examined
_WATCH_LONGER = say("coverage.watch_longer")
_WATCH_TRAINING = say("coverage.watch_training")
_TRACE_IT = say("coverage.trace_it")
_NO_STACKS = NotExamined("stacks", say("coverage.none_kept"), _WATCH_LONGER, too_brief=True)
_NO_NAMES = NotExamined("code", say("coverage.no_names"), say("coverage.open_files"))


def not_examined(job: JobTimeline, case: Case, *, traced: bool) -> tuple[NotExamined, ...]:
    """All that was not examined, what is to be said of the steps first.

    Args:
        job: the job.
        case: what was gathered of it.
        traced: its GPUs' time is known from traces.
    """
    problem = user_frames().problem
    frames = [NotExamined("frames", problem, HINT)] if problem else []
    gpus = [] if traced else _of_gpus(job, case)
    return (
        *_around_training(job),
        *_time_between(job),
        *_several_in_one(job),
        *dict.fromkeys([*gpus, *_unavailable(job), *frames]),
    )


def on_hosts(of_each: Sequence[tuple[str, Iterable[NotExamined]]]) -> list[NotExamined]:
    """What was not examined on several hosts: first what is the same on all, then the rest with where that is.

    Args:
        of_each: the name of each host, and what was not examined there.
    """
    where: dict[NotExamined, list[str]] = {}
    for host, items in of_each:
        for item in dict.fromkeys(items):
            where.setdefault(item, []).append(host)
    everywhere = [item for item, hosts in where.items() if len(hosts) == len(of_each)]
    return [*everywhere, *(_on(hosts, item) for item, hosts in where.items() if len(hosts) < len(of_each))]


def _on(hosts: Sequence[str], item: NotExamined) -> NotExamined:
    some, more = tuple(hosts[:_HOSTS_NAMED]), len(hosts[_HOSTS_NAMED:])
    return replace(item, reason=say("cluster.on_some", reason=item.reason, hosts=some, more=more))


def _of_gpus(job: JobTimeline, case: Case) -> list[NotExamined]:
    """What samples do not show of a GPU, and what could not be read of it."""
    if not any(job.gpus.used_by(trainer.pid) for trainer in job.processes.trainers):
        return []
    found = [NotExamined("gpu", say("coverage.gpu_untraced", tried=knows_such_gpus(case)), _TRACE_IT)]
    if not gpu_use_is_read(case):
        found.append(NotExamined("gpu", say("coverage.gpu_use_unread"), _TRACE_IT))
    return found


def _unavailable(job: JobTimeline) -> list[NotExamined]:
    """What probes said of themselves; of stacks also what it costs to have none."""
    missing = [NotExamined(row.probe, row.reason, row.enable) for row in job.recording.rows(Unavailable)]
    missing += [
        NotExamined("threads", event.text, _WATCH_LONGER, too_brief=True)
        for event in job.recording.rows(Event)
        if event.kind == "rate lowered"
    ]
    missing += [
        NotExamined(event.kind.removesuffix(THINNED), event.text, _WATCH_LONGER, too_brief=True)
        for event in job.recording.rows(Event)
        if event.kind.endswith(THINNED)
    ]
    if not len(job.code):
        refused = [one for one in missing if one.probe == "code"]
        reasons = refused or ([_NO_NAMES] if job.recording.columns(CodeSample, "time_ns")[0] else [])
        without_code = [replace(one, reason=say("coverage.no_code", reason=one.reason)) for one in reasons]
        missing = [one for one in missing if one.probe != "code"] + without_code
    if all(job.locator.is_known(trainer.pid) for trainer in job.processes.trainers):
        return missing
    reasons = [one for one in missing if one.probe == "stacks"] or [_NO_STACKS]
    costly = [replace(one, reason=say("coverage.no_stacks", reason=one.reason)) for one in reasons]
    return [one for one in missing if one.probe != "stacks"] + costly


def _time_between(job: JobTimeline) -> Iterator[NotExamined]:
    """Where the time between steps goes in which no evaluation was seen: it is in no share."""
    for trainer in job.processes.trainers:
        steps = job.steps.get(trainer.pid)
        if steps is None or not steps.all:
            continue
        whole = steps.all[-1].end_ns - steps.all[0].start_ns
        explained_ns = 0 if job.gpus.used_by(trainer.pid) else steps.evaluated_ns
        passed_ns = steps.outside_ns - explained_ns
        if passed_ns < thresholds.TIME_BETWEEN_STEPS * whole:
            continue
        where = by_function(_lines_between(job, trainer.pid, steps))
        passed = say(
            "coverage.between_steps",
            seconds=passed_ns / NS_PER_S,
            share=passed_ns / whole,
            rank=trainer.rank if job.processes.world_size > 1 else None,
            line=where[0][0] if where else None,
        )
        yield NotExamined("steps", passed, say("coverage.validate_less"))


def _lines_between(job: JobTimeline, pid: int, steps: Steps) -> Amounts[str]:
    """The job's own lines that were on the stack between steps."""
    timeline = job.threads.main(pid)
    lines: Amounts[str] = Amounts()
    if timeline is None:
        return lines
    begins = np.array([step.from_ns for step in steps.all])
    ends = np.array([step.end_ns for step in steps.all])
    times = timeline.times_ns[(timeline.times_ns >= steps.all[0].start_ns) & (timeline.times_ns < ends[-1])]
    last = np.searchsorted(begins, times, side="right") - 1
    outside = (last < 0) | (times >= ends[np.maximum(last, 0)])
    for time in times[outside].tolist():
        if line := job.locator.locate(pid, time, job.threads.main_at(pid, time)).line:
            lines[line] += 1
    return lines


def _several_in_one(job: JobTimeline) -> Iterator[NotExamined]:
    """Steps of several backward passes, where nothing separates the passes of a loop: each ``with`` is one step."""
    for trainer in job.processes.trainers:
        steps = job.steps.get(trainer.pid)
        passes = 0 if steps is None else passes_per_step(steps)
        if passes > 1:
            several = say("coverage.several_in_one", passes=passes)
            yield NotExamined("steps", several, say("coverage.one_step_each"))
            return


def passes_per_step(steps: Steps) -> int:
    """Backward passes in each step, rounded; 0 where a loader, an optimizer or ``step()`` separated steps."""
    if not steps.all or steps.holds("optimizer"):
        return 0
    start, end = steps.all[0].start_ns, steps.all[-1].end_ns
    seen = steps.events.during(start, end)
    if "fetch" in seen or "leave loop" in seen or seen.count("leave") < len(steps.all) - 1:
        return 0
    return round(seen.count("worked") / len(steps.all))


def why_no_verdict(job: JobTimeline, accounts: Sequence[Account], still: Stuck | None) -> NoVerdict | None:
    """Why no bottleneck can be named; None if one can.

    Args:
        job: what was seen.
        accounts: of its trainers.
        still: what holds it up if nothing in it moved (``find_still``).
    """
    seen = job.recording.processes
    if not seen:
        return NoVerdict(Why.NOTHING_SEEN, say("verdict.nothing_seen", job_ended=_job_ended(job)))
    if not accounts:
        torch = any(process.uses_torch for process in seen.values())
        return NoVerdict(Why.NOT_TRAINING, say("verdict.no_trainer" if torch else "verdict.no_torch"))
    series = [states for account in accounts if (states := job.threads.main(account.trainer.pid)) is not None]
    if max((len(states.times_ns) for states in series), default=0) < thresholds.FEWEST_SAMPLES:
        return NoVerdict(Why.TOO_BRIEF, say("verdict.too_brief"))
    if max(_samples_of_training(job, account.trainer) for account in accounts) < thresholds.FEWEST_SAMPLES:
        return NoVerdict(Why.TOO_BRIEF, say("verdict.start_or_end", ended=_job_ended(job)))
    return None if still is None else _of_still(still)


def of_stuck(stuck: Stuck) -> NoVerdict:
    """That no bottleneck is named where nothing moves: what holds the job up is a verdict of its own."""
    return NoVerdict(Why.STUCK, stuck.summary, _last_pid(stuck), stuck.rank)


def _of_still(still: Stuck) -> NoVerdict:
    """The same where it was watched too briefly to call it stuck."""
    seen = say("stuck.still", kind=still.kind, chain=still.chain, waiting=still.waiting, ranks=still.ranks)
    return NoVerdict(Why.STILL, seen, _last_pid(still), still.rank)


def _last_pid(stuck: Stuck) -> int | None:
    return stuck.chain[-1].pid if stuck.chain else None


def _samples_of_training(job: JobTimeline, trainer: Process) -> int:
    """How many samples of a trainer's main thread lie between the start of its training and the end."""
    begin, end = job.training_span(trainer)
    return sum(begin <= time <= end for time in job.threads.main_times(trainer.pid))


def _around_training(job: JobTimeline) -> Iterator[NotExamined]:
    """How long the job was watched before it trained and afterwards: that is in no share."""
    spans = [job.training_span(trainer) for trainer in job.processes.trainers]
    if not spans:
        return
    before_ns = min(begin for begin, _ in spans) - job.span[0]
    after_ns = job.span[1] - max(end for _, end in spans)
    if before_ns > 0 or after_ns > 0:
        left_out = say("coverage.around_training", before_s=before_ns / NS_PER_S, after_s=after_ns / NS_PER_S)
        yield NotExamined("stacks", left_out, _WATCH_TRAINING)


def _job_ended(job: JobTimeline) -> bool:
    return [event.text for event in job.recording.rows(Event) if event.kind == "stopped"] == ["job ended"]
