"""What a fix frees, as fractions of the wall time: one estimate for each kind of change."""

from __future__ import annotations

from perfdoctor.causes import INPUT_CAUSES, KERNEL_LAUNCH, MODEL_COMPUTE, NO_TENSOR_CORES
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.detours import ALL_PAIRS, FREED, Freed
from perfdoctor.knowledge.hardware import tensor_core_speedup
from perfdoctor.metrics.own_loops import CostlyLoop
from perfdoctor.rules.case import PASSES, Case
from perfdoctor.rules.neighbours import needed_time
from perfdoctor.rules.optimizer import calls_of_update, update_share
from perfdoctor.rules.proposed import Estimate, Gain, Proposed
from perfdoctor.rules.workers import cores_floor


def known_part(part: float, least: float | None = None) -> Estimate:
    """A known part of the cause, or at least another one."""
    return lambda fix: fix.frees(part if least is None else least, part, part)


ALL = known_part(1.0)
UP_TO_ALL = known_part(1.0, least=0.0)
HALF = known_part(0.5, least=0.0)


def of_line(fix: Proposed) -> Gain | None:
    """The named line's own part of the cause, as far as it can be spared."""
    lines = fix.case.lines.get(fix.cause, ())
    part = lines[0][1] if lines and fix["line"] else 1.0
    return fix.frees(0.0, part, part)


def of_called_line(fix: Proposed) -> Gain | None:
    """The same of a line that calls operations."""
    parts = {**dict(fix.case.lines.get(fix.cause, ())), **dict(fix.case.called_lines.get(fix.cause, ()))}
    part = parts.get(fix["line"], 1.0)
    return fix.frees(0.0, part, part)


def of_loop(fix: Proposed) -> Gain:
    """What a loop calls, next to all of which goes where one operation stands for it.

    Of the arithmetic in it half is taken to go as well, up to three times the calls: small operations begin and end
    more than they compute, and large ones stay. Where two such loops were mended, 0.39 and 0.70 of the time went, and
    their calls alone were 0.11 and 0.44 of it. At most all of it goes: of four more 0.19 to 0.51 went, of which their
    calls and half of their arithmetic were 0.17, 0.17, 0.32 and 0.39. Arithmetic beside the model counts alike.
    """
    parts = [{one.line: one.part for one in _loops(fix.case, about)} for about in (fix.cause, MODEL_COMPUTE)]
    calls, arithmetic = (some.get(fix["line"], 0.0) for some in parts)
    beside = next((one.computes for one in _loops(fix.case, fix.cause) if one.line == fix["line"]), 0.0)
    computes = fix.case.share(MODEL_COMPUTE) * arithmetic + fix.share * beside
    gain = fix.frees_calls(calls, calls)
    half, whole = (min(computes * part, 3 * gain.likely) for part in (0.5, 1.0))
    return Gain(0.0, gain.likely + half, gain.most + whole)


def of_sequence(fix: Proposed) -> Gain:
    """The same where a layer goes over the sequence: cuDNN has each in one call, a CPU only the LSTM (oneDNN).

    On a CPU the others still call what the cell calls, but for the product with the input: of a time that was nearly
    all in such a loop 0.33 (GRU), 0.49 (RNN) and 0.58 to 0.73 (LSTM) went (measured, 40 pieces, torch 2.13), with 200
    pieces 0.35 and 0.77 (LSTM). oneDNN knows no double precision: there an LSTM took 1.06 and 0.74 times as long as its
    cells.
    """
    whole, double = of_loop(fix), (fix.case.number("double_precision") or 0.0) >= thresholds.MOSTLY
    of_cpu = 0.5 if fix["layer"] != "LSTM" else 0.25 if double else 0.8
    part = 1.0 if fix.case.uses_gpu else of_cpu
    return Gain(0.0, part * whole.likely, part * whole.most)


def by_larger_batch(fix: Proposed) -> Gain:
    """Half of the calls per sample, but of those in loops that may go over the samples; and half of each update.

    How long an optimizer computes depends on the parameters only.
    """
    part = max(0.0, 1 - sum(one.part + one.computes for one in _loops(fix.case, fix.cause) if not one.carries)) / 2
    gain = fix.frees_calls(part, part)
    if fix.cause == KERNEL_LAUNCH or fix.case.uses_gpu:
        return gain
    update = max(0.0, fix.worked(update_share(fix.case)) - calls_of_update(fix.case)) / 2
    return Gain(gain.least, gain.likely + update, gain.most + update)


def by_larger_passes(fix: Proposed) -> Gain:
    """Three quarters of the calls, with passes four times as large, and as much arithmetic; nothing of the update.

    Where passes are small they compute less for each sample if they are larger. Of a job with passes of one sample each
    0.86 of the time went, of which calls were 0.36 (measured, all 32 at once).
    """
    update = fix.worked(update_share(fix.case)), calls_of_update(fix.case)
    part = 1 - min(1.0, update[1] / fix.share) if fix.share else 0.0
    computes = max(0.0, fix.case.share(MODEL_COMPUTE) - (update[0] - update[1]))
    calls = fix.frees_calls(0.75 * part, part)
    return Gain(0.0, calls.likely + min(0.5 * computes, calls.likely), calls.most + min(computes, 3 * calls.likely))


def by_graphs(fix: Proposed) -> Gain:
    """What the model's passes launch, at best: a graph of them leaves what the job calls besides, and the optimizer."""
    passes = sum(map(fix.case.phase, PASSES))
    return fix.frees_phases(passes, 0.0, 1.0) if passes else fix.frees(0.0, 1.0, 1.0)


def _loops(case: Case, cause: str) -> tuple[CostlyLoop, ...]:
    return (case.loops or {}).get(cause, ())


def of_done_alone(fix: Proposed) -> Gain:
    """What one rank does alone, as far as the others wait for it; no rank waits once it is gone."""
    likely = min(fix["share"], fix["waited"])
    return Gain(likely / 2, likely, max(fix["share"], fix["waited"]))


def of_named_lines(fix: Proposed) -> Gain | None:
    """The parts of the cause in the functions that are named, as far as they can be spared."""
    parts = dict(fix.case.python_lines.get(fix.cause, ()))
    named = sum(parts.get(line, 0.0) for line in fix["lines"])
    known = min(1.0, named) if named else float(fix["part"])
    return fix.frees(0.0, known, known)


def of_functions(fix: Proposed) -> Gain | None:
    """All of the time in functions that run without torch, or else as ``of_named_lines``."""
    share = fix["share"]
    return of_named_lines(fix) if share is None else Gain(0.0, share, share)


def value(name: str, least: float = 1.0) -> Estimate:
    """A fraction of the wall time that the advice itself says, or at least a part of it."""
    return lambda fix: Gain(least * fix[name], fix[name], fix[name])


def without_detour(freed: Freed) -> Estimate:
    """What lines of the job's own take that do something again or for nothing, and what of other passes goes with it.

    Of the backward pass no more goes than it takes.
    """

    def estimate(fix: Proposed) -> Gain:
        share = fix["share"]
        most = share + fix.case.phase("backward") if freed.backward else 1.0
        least, likely, at_most = (min(times * share, most) for times in (freed.least, freed.likely, freed.most))
        return Gain(least, likely, at_most)

    return estimate


def without_pairs(fix: Proposed) -> Gain:
    """What pairs take that are written out, and what the backward pass takes beyond its usual time.

    Through layers it takes about twice as long as the forward pass: two products instead of one.
    """
    share, freed, passes = fix["share"], FREED[ALL_PAIRS], fix.case.phase
    beyond = passes("backward") - 2 * passes("forward")
    most = min(freed.most * share, share + passes("backward"))
    return Gain(freed.least * share, min(max(freed.likely * share, share + beyond), most), most)


def half_of_waiting(fix: Proposed) -> Gain:
    """What twice as many pieces leave of the time that stages of a pipeline wait; at most all of it, with many more."""
    return Gain(0.0, fix["waiting"] / 2, fix["waiting"])


def without_collective_checks(fix: Proposed) -> Gain:
    """What ranks take to agree about a collective before they run it.

    A collective of 16 to 100,000 numbers took 2 to 3 ms longer so, where it took 0.2 to 0.8 ms without (gloo, one
    host); of a job with few and large ones, 0.2 of 0.64 went.
    """
    return fix.frees(0.25, 0.5, 0.9)


def by_kept_program(fix: Proposed) -> Gain:
    """What starting programs takes of what they take; the rest is work that goes on as before.

    Of a job that was in an interpreter of 20 ms for 0.48 of the time, started at each step, 0.38 went.
    """
    return Gain(0.2 * fix["share"], 0.8 * fix["share"], fix["share"])


def without_checkpoints(fix: Proposed) -> Gain:
    """What is computed again, if memory has room for what is then kept."""
    return Gain(0.0 if fix["full"] else fix["again"], fix["again"], fix["again"])


def without_profiling(fix: Proposed) -> Gain:
    """What a profiler does with what it has recorded, or most of it; at most all calls, of which each is recorded."""
    share = fix["share"]
    return Gain(0.8 * share, share, max(share, fix.share))


def by_computing_once(fix: Proposed) -> Gain:
    """What a loop of the forward pass computes anew, and as much of the backward pass as of the forward one.

    Measured on a recurrent layer of orthogonal weights that went through 8 rounds: 0.78 of the time went, where stacks
    were in the weights for 0.15, of 0.21 in the forward pass.
    """
    share, forward, backward = fix["share"], fix.case.phase("forward"), fix.case.phase("backward")
    most = share + (backward * min(1.0, share / forward) if forward else 0.0)
    return Gain(share / 2, 0.9 * most, share + backward)


def without_tracer(fix: Proposed) -> Gain:
    """What the main thread is stopped for, and what each stop costs before and after it, while the thread runs.

    Measured on a job that reads a file for each sample under strace: stopped for 0.41 of the time, 0.70 went without.
    """
    share = fix["share"]
    return Gain(share, 1.5 * share, 2 * share)


def without_tracing(fix: Proposed) -> Gain:
    """What the trace function takes, and what Python does to call it, a part of which shows elsewhere.

    Measured: 0.24, 0.30 and 0.39 of the CPU time went where stacks were in it for 0.12 to 0.23, 0.30 and 0.30.
    """
    share = fix.worked(fix["share"])
    return Gain(share / 2, 1.2 * share, 2 * share)


def without_recomputing(fix: Proposed) -> Gain:
    """The same on a CPU, and Python's hooks for each tensor that a block does not keep.

    Measured on two transformers: stacks were in passes that run again for 0.20 and 0.23 of the time, and 0.34 and 0.29
    went.
    """
    again = fix.worked(fix["again"])
    return Gain(0.0 if fix["full"] else again, 1.2 * again, 1.7 * again)


def part_value(name: str) -> Estimate:
    """A part of the cause that the advice itself says."""
    return lambda fix: None if fix[name] is None else fix.frees_exactly(fix[name])


def less_often(fix: Proposed) -> Gain:
    """All but one of so many times."""
    return fix.frees_exactly(1 - 1 / fix["times"])


def by_fewer_evaluations(fix: Proposed) -> Gain:
    """All but one of so many evaluations, with what else they take: the batches that they read, and their log.

    That may be work that was to be done in any case: batches that workers prepare ahead for the training. Where next to
    no training was seen, how often it evaluates is not known.
    """
    passes, rarer = less_often(fix), 1 - 1 / fix["times"]
    evaluating = fix.case.mean_of("own_evaluating")
    if evaluating > 1 - thresholds.MIN_SHARE:
        return passes
    whole = rarer * max(fix.share, fix.worked(evaluating))
    return Gain(passes.least, whole, max(passes.most, whole))


def by_asking_together(fix: Proposed) -> Gain:
    """Of all waiting for helpers, what they take less when as many work at once as there are cores for.

    That goes to several causes: what the helpers do, and handing it over.
    """
    waited, now = sum(map(fix.case.share, INPUT_CAUSES)), max(1.0, fix["at_once"] or 1.0)
    together = min(fix["helpers"], fix.case.setting("cores") or fix["helpers"])
    likely, most = (max(0.0, waited * (1 - now / number)) for number in (together, fix["helpers"]))
    return Gain(likely / 2, likely, most)


def beside(fix: Proposed) -> Gain:
    """All of it, where the work goes on beside the training: it still takes its time, and its share of the cores."""
    share, cores = fix.share, fix.case.setting("cores")
    left = max(share, cores_floor(fix.case, share, cores) if cores else share)
    return fix.frees(0.5, 1.0, 1.0).within(left)


def by_overlap(fix: Proposed) -> Gain:
    """What the rest of the time can hide: copies still take theirs."""
    hidden = min(fix.share, 1 - fix.share)
    return Gain(0.0, hidden, hidden)


def by_tensor_cores(precision: str) -> Estimate:
    """What matrix kernels in full precision take longer than tensor cores would, by the peaks of the GPU.

    At best as much as the peaks differ; as a rule both units reach a part of theirs; at least they are twice as fast.
    """

    def estimate(fix: Proposed) -> Gain:
        device, capability = fix.case.gpu_name, fix.case.setting("compute_capability")
        times = tensor_core_speedup(device, capability, precision)
        usual = max(1.0, times * thresholds.TENSOR_CORES_AT_WORK / thresholds.SINGLE_PRECISION_AT_WORK)
        least, likely, most = (1 - 1 / one for one in (min(usual, thresholds.LEAST_WITH_TENSOR_CORES), usual, times))
        whole = 1.0
        if fix.cause != NO_TENSOR_CORES:  # the share is of all arithmetic
            whole = fix.case.number("traced_matrix_fp32") or 0.0
        elif fix.case.number("traced_kernel_time") is None:  # the share is what the fastest precision frees already
            whole = 1 / max(1 - 1 / tensor_core_speedup(device, capability), thresholds.LEAST_LEFT)
        return fix.frees(*(min(1.0, whole * part) for part in (least, likely, most)))

    return estimate


def by_no_call(fix: Proposed) -> Gain:
    """What is collected by hand; at lines beside it Python may collect a part of that itself."""
    return fix.frees(0.8 * fix["part"], fix["part"], 1.0)


def by_fewer_workers(fix: Proposed) -> Gain:
    """The part of the queues that workers make, as far as they are what keeps the job's cores busy."""
    workers, job = fix.case.number("worker_cores"), fix.case.number("job_cores")
    part = min(1.0, workers / job) if workers is not None and job else 1.0
    return fix.frees(0.0, part, 1.0)


def by_fewer_threads(fix: Proposed) -> Gain:
    """The queues; and, of the arithmetic, what threads beyond the cores spend on waking and waiting for each other.

    That part is not seen, so it is in the range only (measured: 4.7 times the pace where queues alone said 2.7).
    """
    low, high = fix.case.range_of(fix.cause)
    beyond = max(0.0, 1 - fix["cores"] / fix["runnable"])
    gain = Gain(0.5 * low, fix.share, min(1.0, high + beyond * fix.case.share(MODEL_COMPUTE)))
    return gain.within(needed_time(fix.case))


def by_calmer_helper(fix: Proposed) -> Gain:
    """The part of the queues that there is for what one process keeps busy; half of that where it has to do some of it.

    Of a job that queued for 0.66 of the time beside such a process, 0.64 went without it.
    """
    part = fix["part"] * fix.share
    return Gain(0.5 * part, part, max(part, fix.case.range_of(fix.cause)[1]))


def by_tensors(fix: Proposed) -> Gain:
    """What is spent in the tables' own code, and what is computed of their rows."""
    return fix.frees(0.5 * fix["part"], fix["part"], 1.0)


def fewer_threads_beside(fix: Proposed) -> Gain:
    """What the advice says of neighbours, or at most the queues."""
    likely = 1 - 1 / fix["gain"]
    return Gain(0.0, likely, max(likely, fix.case.range_of(fix.cause)[1]))


def on_other_cores(fix: Proposed) -> Gain:
    """All of it where there is a core for whoever works at the same time; else no more than the cores allow."""
    cores = fix.case.setting("cores")
    busy = 1 + max(1, max((trainer.workers for trainer in fix.case.trainers), default=0))
    full = cores is not None and cores < busy * len(fix.case.trainers)
    return fix.frees(0.5, 1.0, 1.0).within(cores_floor(fix.case, 1.0, cores) if full and cores else None)


def missing_link(fix: Proposed) -> Gain:
    """What copies take longer than they would over the whole link."""
    return fix.frees_exactly(1 - (fix["link"] or 1.0))
