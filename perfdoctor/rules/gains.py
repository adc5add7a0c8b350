"""What each fix brings: one estimate per piece of advice, and the range in which it lies.

A fix is about a part of its cause. It frees that part of the wall time, or less where the work remains and is only done
beside the training. What is left bounds it: the next bottleneck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfdoctor.causes import MODEL_COMPUTE
from perfdoctor.diagnosis import Advice
from perfdoctor.knowledge import thresholds
from perfdoctor.metrics.own_loops import CostlyLoop
from perfdoctor.rules.case import Case
from perfdoctor.rules.workers import cores_floor, plan_workers


@dataclass(frozen=True, slots=True)
class Gain:
    """What a change frees, as fractions of the wall time.

    Attributes:
        least: where little comes of it; 0 where that depends on how well the change is made.
        likely: what to expect.
        most: where everything goes well.
    """

    least: float
    likely: float
    most: float

    def within(self, left: float | None) -> Gain:
        """The same, where some fraction of the wall time remains whatever is changed."""
        room = 1.0 if left is None else max(0.0, 1 - left)
        return Gain(min(self.least, room), min(self.likely, room), min(self.most, room))


# From the case, the cause and what the advice says to what it frees; None where the numbers for it are missing.
Estimate = Callable[[Case, str, Mapping[str, Any]], Gain | None]


def freed(share: float) -> float:
    """The speed-up where a share of the wall time is freed."""
    return 1 / max(1 - share, thresholds.LEAST_LEFT)


def with_gain(advice: Advice, case: Case, cause: str, left: float | None = None) -> Advice:
    """Advice with the speed-up that it brings, where that can be computed.

    Args:
        advice: a fix for the cause.
        case: what was measured.
        cause: its id.
        left: fraction of the wall time that remains whatever is changed; None where nothing is known to.
    """
    estimate = GAINS.get(advice.message.id)
    gain = estimate(case, cause, dict(advice.message.values)) if estimate else None
    if gain is None:
        return advice
    gain = gain.within(left)
    return Advice(advice.message, freed(gain.likely), (freed(gain.least), freed(gain.most)))


def _of_share(case: Case, cause: str, least: float, likely: float, most: float) -> Gain:
    """Parts of the cause, each of the share that sampling would have shown at least and at most."""
    low, high = case.range_of(cause)
    return Gain(least * low, likely * case.share(cause), most * high)


def _exactly(case: Case, cause: str, part: float) -> Gain:
    """A part of the cause that is sure but for the sampling."""
    return _of_share(case, cause, part, part, part)


def _part(part: float, least: float | None = None) -> Estimate:
    """A known part of the cause, or at least another one."""
    return lambda case, cause, _: _of_share(case, cause, part if least is None else least, part, part)


_ALL = _part(1.0)
_UP_TO_ALL = _part(1.0, least=0.0)
_HALF = _part(0.5, least=0.0)


def _of_line(case: Case, cause: str, values: Mapping[str, Any]) -> Gain | None:
    """The named line's own part of the cause, as far as it can be spared."""
    lines = case.lines.get(cause, ())
    part = lines[0][1] if lines and values["line"] else 1.0
    return _of_share(case, cause, 0.0, part, part)


def _before_draws(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """What is the same in each epoch."""
    kept = 1 - (values["drawn"] or 0.0)
    return _of_share(case, cause, 0.0, kept, kept)


def _of_called_line(case: Case, cause: str, values: Mapping[str, Any]) -> Gain | None:
    """The same of a line that calls operations."""
    parts = {**dict(case.lines.get(cause, ())), **dict(case.called_lines.get(cause, ()))}
    part = parts.get(values["line"], 1.0)
    return _of_share(case, cause, 0.0, part, part)


def _of_loop(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """What a loop calls, next to all of which goes where one operation stands for it.

    Of the arithmetic in it half is taken to go as well: small operations begin and end more than they compute. Where
    two such loops were mended, 0.39 and 0.70 of the time went, and their calls alone were 0.11 and 0.44 of it.
    """
    parts = [{one.line: one.part for one in _loops(case, about)} for about in (cause, MODEL_COMPUTE)]
    calls, arithmetic = (some.get(values["line"], 0.0) for some in parts)
    beside = case.share(MODEL_COMPUTE) * arithmetic / 2
    gain = _of_share(case, cause, 0.0, calls, calls)
    return Gain(0.0, gain.likely + beside, gain.most + beside)


def _of_sequence(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """The same where a layer goes over the sequence: cuDNN has each in one call, a CPU only the LSTM (oneDNN).

    On a CPU the others still call what the cell calls, but for the product with the input: of a time that was nearly
    all in such a loop 0.33 (GRU), 0.49 (RNN) and 0.58 to 0.73 (LSTM) went (measured, 40 pieces, torch 2.13).
    """
    whole = _of_loop(case, cause, values)
    part = 1.0 if values["layer"] == "LSTM" or case.uses_gpu else 0.5
    return Gain(0.0, part * whole.likely, part * whole.most)


def _by_larger_batch(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """Half of the calls per sample; not of those in loops that may go over the samples."""
    part = max(0.0, 1 - sum(one.part for one in _loops(case, cause) if not one.carries)) / 2
    return _of_share(case, cause, 0.0, part, part)


def _loops(case: Case, cause: str) -> tuple[CostlyLoop, ...]:
    return (case.loops or {}).get(cause, ())


def _of_done_alone(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """What one rank does alone, as far as the others wait for it; no rank waits once it is gone."""
    likely = min(values["share"], values["waited"])
    return Gain(likely / 2, likely, max(values["share"], values["waited"]))


def _of_named_lines(case: Case, cause: str, values: Mapping[str, Any]) -> Gain | None:
    """The parts of the cause in the functions that are named, as far as they can be spared."""
    parts = dict(case.python_lines.get(cause, ()))
    named = sum(parts.get(line, 0.0) for line in values["lines"])
    known = min(1.0, named) if named else float(values["part"])
    return _of_share(case, cause, 0.0, known, known)


def _value(name: str, least: float = 1.0) -> Estimate:
    """A fraction of the wall time that the advice itself says, or at least a part of it."""
    return lambda case, cause, values: Gain(least * values[name], values[name], values[name])


def _without_checkpoints(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """What is computed again, if memory has room for what is then kept."""
    return Gain(0.0 if values["full"] else values["again"], values["again"], values["again"])


def _part_value(name: str) -> Estimate:
    """A part of the cause that the advice itself says."""
    return lambda case, cause, values: None if values[name] is None else _exactly(case, cause, values[name])


def _less_often(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """All but one of so many times."""
    return _exactly(case, cause, 1 - 1 / values["times"])


def _by_fewer_evaluations(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """All but one of so many evaluations, with what else they take: the batches that they read, and their log.

    That may be work that was to be done in any case: batches that workers prepare ahead for the training.
    """
    passes, rarer = _less_often(case, cause, values), 1 - 1 / values["times"]
    whole = rarer * max(case.share(cause), case.mean_of("own_evaluating"))
    return Gain(passes.least, whole, max(passes.most, whole))


def _by_workers(case: Case, cause: str, values: Mapping[str, Any]) -> Gain | None:
    """What the plan leaves; workers help against all causes in the input, and this one gains no more than its share."""
    plan, share = plan_workers(case, cause), case.share(cause)
    if plan is None:
        return None
    low, high = case.range_of(cause)
    known = low if plan.cores is not None else 0.0  # without free cores a worker takes one from the arithmetic
    return Gain(min(known, max(0.0, 1 - plan.worst)), min(share, 1 - plan.pace), min(high, 1 - plan.best))


def _by_even_workers(case: Case, cause: str, values: Mapping[str, Any]) -> Gain | None:
    plan = plan_workers(case, cause)
    if plan is None or not plan.now:
        return None
    left = max(plan.own, plan.busy / plan.now)
    return _exactly(case, cause, 1.0).within(left)


def _by_no_workers(case: Case, cause: str, values: Mapping[str, Any]) -> Gain | None:
    """Nothing is handed over, and the trainer prepares what its workers do now, without what sending takes of that."""
    plan = plan_workers(case, cause)
    if plan is None or not plan.now:
        return None
    return Gain(0.0, min(case.share(cause), max(0.0, 1 - plan.own - plan.busy)), case.range_of(cause)[1])


def _beside(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """All of it, where the work goes on beside the training: it still takes its time, and its share of the cores."""
    share, cores = case.share(cause), case.setting("cores")
    left = max(share, cores_floor(case, share, cores) if cores else share)
    return _of_share(case, cause, 0.5, 1.0, 1.0).within(left)


def _by_fused_update(case: Case, cause: str, values: Mapping[str, Any]) -> Gain | None:
    """The calls of the optimizer's step, nearly all of which go; its arithmetic becomes cheaper at best."""
    parts = [trainer.number("own_updating") for trainer in case.trainers]
    known = [part for part in parts if part is not None]
    if not known:
        return None
    calls = sum(known) / len(known)
    return Gain(calls / 2, calls, max(calls, values["share"]))


def _by_no_call(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """What is collected by hand; at lines beside it Python may collect a part of that itself."""
    return _of_share(case, cause, 0.8 * values["part"], values["part"], 1.0)


def _by_fewer_threads(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """The queues; and, of the arithmetic, what threads beyond the cores spend on waking and waiting for each other.

    That part is not seen, so it is in the range only (measured: 4.7 times the pace where queues alone said 2.7).
    """
    low, high = case.range_of(cause)
    beyond = max(0.0, 1 - values["cores"] / values["runnable"])
    return Gain(0.5 * low, case.share(cause), min(1.0, high + beyond * case.share(MODEL_COMPUTE)))


def _by_tensors(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """What is spent in the tables' own code, and what is computed of their rows."""
    return _of_share(case, cause, 0.5 * values["part"], values["part"], 1.0)


def _fewer_threads_beside(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    likely = 1 - 1 / values["gain"]
    return Gain(0.0, likely, max(likely, case.range_of(cause)[1]))


def _on_other_cores(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """All of it where there is a core for whoever works at the same time; else no more than the cores allow."""
    cores, busy = case.setting("cores"), 1 + max(1, max((trainer.workers for trainer in case.trainers), default=0))
    full = cores is not None and cores < busy * len(case.trainers)
    return _of_share(case, cause, 0.5, 1.0, 1.0).within(cores_floor(case, 1.0, cores) if full and cores else None)


def _by_single_precision(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    """Half of what is in double precision: registers hold, and memory moves, twice as many numbers at a time."""
    return _of_share(case, cause, 0.25 * values["part"], 0.5 * values["part"], 0.5 * values["part"])


def _by_more_threads(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    times = values["more"] / float(values["threads"])
    return _of_share(case, cause, 0.0, 1 - times**-thresholds.POOL_SCALING, 1 - 1 / times)


def _missing_link(case: Case, cause: str, values: Mapping[str, Any]) -> Gain:
    return _exactly(case, cause, 1 - (values["link"] or 1.0))


# By the id of the advice. What is not here cannot be estimated before it is tried. How much is sure is judgement: half
# of it where the work goes on elsewhere, four fifths where something small takes its place. Half of the calls go with
# twice the batch, half of the bytes with half the precision, and three exchanges of four with gradients of four steps.
GAINS: Mapping[str, Estimate] = {
    # Input.
    "input.more_workers": _by_workers,
    "input.spread_work": _by_even_workers,
    "input.cheaper": _of_line,
    "input.table_once": _by_tensors,
    "input.prepare_once": _before_draws,
    "input.faster_server": _UP_TO_ALL,
    "input.whole_batches": _UP_TO_ALL,
    "input.draw_many": _part(1.0, least=0.5),
    "input.draw_ahead": _UP_TO_ALL,
    "input.keep_workers": _ALL,
    "input.longer_epochs": _UP_TO_ALL,
    "input.fewer_tensors": _UP_TO_ALL,
    "input.without_workers": _by_no_workers,
    "input.ask_helpers": _UP_TO_ALL,
    "input.pin_less": _UP_TO_ALL,
    "input.own_resource": _on_other_cores,
    "input.lock_shared_part": _UP_TO_ALL,
    # Python.
    "interpreter.no_anomaly_detection": _part(1.0, least=0.5),
    "interpreter.fused_optimizer": _by_fused_update,
    "interpreter.more_rarely": _of_named_lines,
    "interpreter.cheaper_python": _of_named_lines,
    "interpreter.larger_operations": _of_called_line,
    "interpreter.without_loop": _of_loop,
    "interpreter.whole_sequence": _of_sequence,
    "interpreter.several_at_once": _by_larger_batch,
    "interpreter.larger_batch": _by_larger_batch,
    "interpreter.done_alone": _of_done_alone,
    "interpreter.own_process": _on_other_cores,
    "interpreter.rest": _UP_TO_ALL,
    "interpreter.step_together": _UP_TO_ALL,
    "interpreter.keep_compiled": _UP_TO_ALL,
    "interpreter.collect_rarely": _part(1.0, least=0.8),
    "interpreter.fewer_objects": _UP_TO_ALL,
    "interpreter.collected_by_hand": _UP_TO_ALL,
    "interpreter.no_call": _by_no_call,
    "interpreter.shorten_outside": _UP_TO_ALL,
    "interpreter.cheaper_operator": _UP_TO_ALL,
    "interpreter.compile_once": _UP_TO_ALL,
    # Evaluation.
    "evaluation.less_often": _by_fewer_evaluations,
    "evaluation.subset": _by_fewer_evaluations,
    "evaluation.larger_batches": _HALF,
    # Cores.
    "cores.fewer_threads_beside": _fewer_threads_beside,
    "cores.fewer_threads": _by_fewer_threads,
    "cores.fewer_workers": _UP_TO_ALL,
    "cores.move_neighbours": _ALL,
    "cores.wider_mask": _ALL,
    "cores.raise_quota": _ALL,
    "cores.single_precision": _by_single_precision,
    "cores.more_threads": _by_more_threads,
    # Input and output.
    "io.raise_limit": _UP_TO_ALL,
    "io.save_behind": _beside,
    "io.save_less_often": _less_often,
    "io.log_less_often": _less_often,
    "io.another_thread": _beside,
    "io.keep_in_memory": _UP_TO_ALL,
    "io.copy_to_local": _UP_TO_ALL,
    "io.larger_files": _UP_TO_ALL,
    "io.mapped_pieces": _UP_TO_ALL,
    "io.no_flush": _UP_TO_ALL,
    "io.at_the_same_time": _UP_TO_ALL,
    "io.larger_objects": _UP_TO_ALL,
    "io.local_copy": _part(1.0, least=0.5),
    "io.no_python_objects": _UP_TO_ALL,
    "io.more_memory": _ALL,
    # Communication.
    "communication.fewer_channels": _value("longer", 0.0),
    "communication.high_priority": _value("share", 0.8),
    "communication.exchange_seldom": _part(0.75, least=0.5),
    "communication.half_precision": _HALF,
    "communication.one_process": _part(1.0, least=0.5),
    "communication.overlap": _UP_TO_ALL,
    "communication.sharded_half_precision": _HALF,
    "communication.shard_within_host": _UP_TO_ALL,
    "communication.prefetch_parameters": _UP_TO_ALL,
    "communication.gather_once": _UP_TO_ALL,
    "communication.use_ddp": _UP_TO_ALL,
    "communication.send_as_one": _UP_TO_ALL,
    "communication.use_buckets": _UP_TO_ALL,
    "communication.no_data_parallel": _UP_TO_ALL,
    # What a GPU works at.
    "gpu.checkpoint_less": _without_checkpoints,
    "gpu.checkpoint_selectively": _value("again", 0.5),
    "gpu.larger_batch": _UP_TO_ALL,
    "gpu.merge_kernels": _UP_TO_ALL,
    "gpu.bfloat16": _UP_TO_ALL,
    "gpu.float16": _UP_TO_ALL,
    "gpu.tf32": _UP_TO_ALL,
    "gpu.allow_tf32_again": _UP_TO_ALL,
    "gpu.halve_bytes": _HALF,
    "gpu.fuse": _UP_TO_ALL,
    "gpu.cool": _ALL,
    "gpu.power_supply": _ALL,
    "gpu.power_limit": _ALL,
    "gpu.unlock_clocks": _ALL,
    "gpu.own_gpu": _ALL,
    # What a GPU waits for.
    "gpu_idle.cuda_graphs": _UP_TO_ALL,
    "gpu_idle.larger_batch": _HALF,
    "gpu_idle.keep_values": _of_line,
    "gpu_idle.pin_batches": _UP_TO_ALL,
    "gpu_idle.overlap_copies": _UP_TO_ALL,
    "gpu_idle.make_on_gpu": _UP_TO_ALL,
    "gpu_idle.growing_segments": _UP_TO_ALL,
    "gpu_idle.keep_cache": _UP_TO_ALL,
    # Health.
    "health.mend_pcie": _missing_link,
    "health.mend_nvlink": _part_value("down"),
    "health.raise_core_clock": _part_value("below"),
    "health.leave_host": _part_value("stolen"),
}
