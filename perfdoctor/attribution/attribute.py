"""Where every second of the trainers' wall time went, by cause, the unattributed rest included.

Each sample of a trainer is an observation; classifiers turn it into shares, an account sums them up, and named passes
over the accounts settle what only the whole recording shows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress

import numpy as np
import numpy.typing as npt

from perfdoctor.attribution.account import Account, Sampled
from perfdoctor.attribution.gpu import settle_with_gpus
from perfdoctor.attribution.habits import read_context
from perfdoctor.attribution.late_ranks import charge_excess
from perfdoctor.attribution.passes import charge_slowest_stage, name_latency, settled_samples
from perfdoctor.attribution.share import LAUNCHING
from perfdoctor.attribution.trainers import JobClassifier, TrainerClassifier
from perfdoctor.causes import MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.long_steps import weigh_excess
from perfdoctor.timeline.processes import Process
from perfdoctor.timeline.stand_ins import stand_ins
from perfdoctor.timeline.steps import Times
from perfdoctor.timeline.threads import ThreadSeries

BLOCK_NS = NS_PER_S
# Of so many groups of samples, of all trainers together, those are attributed that stand for all.
_GROUPS = 16_000
_OF_OPERATIONS = (PYTHON_OVERHEAD, MODEL_COMPUTE, LAUNCHING)
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
# Seconds that samples of a trainer stand for, by their times and the borders between them.
Weigh = Callable[[JobTimeline, Process, Times, Floats], Floats]


def attribute(*hosts: JobTimeline) -> list[Account]:
    """Accounts for every instant at which the trainers were sampled, one account per trainer.

    Args:
        hosts: the job as it was watched on each of its hosts, on one clock and over the same time.
    """
    contexts = [read_context(job) for job in hosts]
    classifier = JobClassifier(contexts)
    accounts = [_accounts(one, _all_time) for one in classifier.hosts]
    settled = settle_with_gpus(hosts, accounts)
    charged = [
        [charge_slowest_stage(context, account) for account in some]
        for context, some in zip(contexts, settled, strict=True)
    ]
    named = name_latency(hosts, charged)
    if len(named) < 2 or any(len(account.samples) < account.sampled for account in named):
        return charge_excess(named)
    begins = [job.span[0] for job, some in zip(hosts, charged, strict=True) for _ in some]
    return charge_excess(named, [settled_samples(*of, BLOCK_NS) for of in zip(named, begins, strict=True)])


def attribute_long_steps(job: JobTimeline) -> list[Account]:
    """Accounts for what long steps take longer than ordinary ones, one per trainer; empty without marked steps.

    What comes now and then does not flow through the loader's pipeline, so that no stage of it is charged for another.
    How busy a GPU was is known over longer times than such a step takes: what its host does at it is left as it is.
    """
    (classifier,) = JobClassifier([read_context(job)]).hosts
    return charge_excess(name_latency([job], [_accounts(classifier, _long_steps)]))


def _accounts(classifier: TrainerClassifier, weigh: Weigh) -> list[Account]:
    return [_account_for(classifier, trainer, weigh) for trainer in classifier.context.job.processes.trainers]


def _account_for(classifier: TrainerClassifier, trainer: Process, weigh: Weigh) -> Account:
    job, code = classifier.context.job, classifier.context.habits[trainer.pid].code
    account = Account(trainer, interpreter=code.interpreter, libraries=code.libraries, outside_torch=code.outside_torch)
    main = job.threads.main(trainer.pid)
    if main is None:
        return account
    times, spans, kinds = _spans(job, trainer, main, weigh)
    account.sampled = sum(seconds > 0 for seconds in spans)
    for number, seconds in stand_ins(spans, kinds, _GROUPS // len(job.processes.trainers)).items():
        time = times[number]
        seen = job.observe(trainer, time)
        shares = classifier.shares(seen)
        account.add((time - job.span[0]) // BLOCK_NS, seconds, seen.location, shares)
        causes = Amounts.summed({share.cause: share.weight * seconds} for share in shares)
        late = Amounts.summed({share.rank: share.weight * seconds} for share in shares if share.rank is not None)
        account.samples.append(Sampled(time, causes, seen.location.part_of_step, late))
    operators = LAUNCHING if code.on_gpu else MODEL_COMPUTE
    return account.with_mix_of_lines(code.of_lines, operators).with_backward_at_forward(_OF_OPERATIONS)


# What the kernel shows of a thread: its state, and the system call that it is in.
Kind = tuple[str, str | None]


def _spans(
    job: JobTimeline, trainer: Process, main: ThreadSeries, weigh: Weigh
) -> tuple[list[int], list[float], list[Kind]]:
    """When a trainer was sampled while it trained, for how many seconds each sample stands, and what kind it is of."""
    alive = np.array([state != "X" for state in main.states], dtype=bool)
    begin, end = job.training_span(trainer)
    alive &= (main.times_ns >= begin) & (main.times_ns <= end)
    times = main.times_ns[alive]
    if len(times) < 2:
        return [], [], []
    # Each sample stands for the time up to halfway to its neighbours.
    edges = np.concatenate([times[:1], (times[1:] + times[:-1]) / 2, times[-1:]])
    spans = weigh(job, trainer, times, edges)
    runnable = np.array([state == "R" for state in main.states], dtype=bool)[alive]
    counted = main.uses(edges, spans > 0)
    kinds = list(compress(zip(main.states, main.syscalls, strict=True), alive))
    return times.tolist(), as_counted(spans, runnable, counted).tolist(), kinds


def _all_time(job: JobTimeline, trainer: Process, times: Times, edges: Floats) -> Floats:
    """All of it; where steps were marked, these and the evaluations between them.

    A trace shows what the steps of a GPU are made of, and nothing of evaluations: there they stay outside.
    """
    steps = job.steps.get(trainer.pid)
    if steps is None or not steps.all:
        return np.diff(edges) / NS_PER_S
    weights = steps.weigh(times, edges)
    return weights if job.gpus.used_by(trainer.pid) else weights + steps.evaluated_s(edges)


def _long_steps(job: JobTimeline, trainer: Process, times: Times, edges: Floats) -> Floats:
    steps = job.steps.get(trainer.pid)
    return np.zeros(len(times)) if steps is None else weigh_excess(steps, times, edges)


def as_counted(spans: Floats, runnable: Flags, counted: tuple[float, float]) -> Floats:
    """Spans of time scaled so that a thread is runnable for as long as the kernel counted, and else asleep.

    Samples are not fair where the job's own wake-ups and the observer's fall on the same ticks of a clock: a loop
    that waited for its log for 9 % of the time was seen waiting in 2 % of the samples (measured). The kernel's clocks
    miss nothing. This is post-stratification, as surveys do it. A delay may end a wait or interrupt work, so between
    time on a CPU and that with all delays, what was sampled stands.

    Args:
        spans: seconds that each sample stands for.
        runnable: whether the thread was on a CPU or ready for one then.
        counted: fractions of the time that the kernel counted it as on a CPU, and as ready for one.
    """
    seen = float(spans[runnable].sum() / (spans.sum() or 1.0))
    running, delayed = counted
    was = min(max(seen, running), running + delayed)
    if not 0 < seen < 1 or not 0 < was < 1:
        return spans
    return np.asarray(spans * np.where(runnable, was / seen, (1 - was) / (1 - seen)))
