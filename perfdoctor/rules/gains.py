"""What each fix brings: one estimate per piece of advice, and the range in which it lies.

A fix is about a part of its cause. It frees that part of the wall time, or less where the work remains and is only done
beside the training. What is left bounds it: the next bottleneck.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import perfdoctor.rules.arithmetic_estimates as arithmetic_estimates
import perfdoctor.rules.estimates as estimates
import perfdoctor.rules.exchange_estimates as exchange_estimates
import perfdoctor.rules.gradient_estimates as gradient_estimates
import perfdoctor.rules.input_estimates as input_estimates
import perfdoctor.rules.optimizer as optimizer
from perfdoctor.diagnosis import Advice
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.detours import ALL_PAIRS, FREED
from perfdoctor.messages import Message, say
from perfdoctor.rules.case import Case
from perfdoctor.rules.neighbours import with_queueing
from perfdoctor.rules.proposed import Estimate, Proposed
from perfdoctor.rules.workers import supply_floor


def freed(share: float) -> float:
    """The speed-up where a share of the wall time is freed."""
    return 1 / max(1 - share, thresholds.LEAST_LEFT)


def with_gain(advice: Advice, case: Case, cause: str, left: float | None = None) -> Advice:
    """Advice with whether it changes what a step is, and the speed-up that it brings, where that can be computed.

    Args:
        advice: a fix for the cause.
        case: what was measured.
        cause: its id.
        left: fraction of the wall time that remains whatever is changed; None where nothing is known to.
    """
    what = advice.message.id
    advice = replace(advice, changes_step=what in CHANGES_STEP, price=PRICES.get(what))
    estimate = GAINS.get(advice.message.id)
    gain = estimate(Proposed(case, cause, dict(advice.message.values))) if estimate else None
    if gain is None:
        return advice
    times = with_queueing(case, cause)
    gain = replace(gain, likely=times * gain.likely, most=times * gain.most).within(left)
    if (floor := supply_floor(case, cause)) is not None:  # until the input keeps up
        gain = replace(gain.within(floor), most=gain.most)
    likely, least, most = map(freed, (gain.likely, gain.least, gain.most))
    return replace(advice, predicted_speedup=likely, speedup_range=(least, most))


# By the id of the advice. What is not here cannot be estimated before it is tried. How much is sure is judgement: half
# of it where the work goes on elsewhere, four fifths where something small takes its place. Half of the calls go with
# twice the batch, and half of the bytes with half the precision.
GAINS: Mapping[str, Estimate] = {
    # Input.
    "workers.more": input_estimates.by_workers,
    "workers.take_over": input_estimates.by_workers,
    "workers.spread_work": input_estimates.by_even_workers,
    "input.cheaper": input_estimates.of_slow_call,
    "input.table_once": estimates.by_tensors,
    "input.open_once": estimates.value("share", 0.5),
    "input.fewer_passes": input_estimates.by_fewer_passes,
    "input.prepare_once": input_estimates.before_draws,
    "input.faster_server": estimates.UP_TO_ALL,
    "input.whole_batches": estimates.UP_TO_ALL,
    "input.no_sleep": estimates.value("share", 0.0),
    "input.draw_many": estimates.known_part(1.0, least=0.5),
    "input.keep_iterator": estimates.value("share", 0.8),
    "input.draw_ahead": estimates.UP_TO_ALL,
    "input.keep_workers": estimates.ALL,
    "workers.keep_pool": estimates.ALL,
    "input.longer_epochs": estimates.UP_TO_ALL,
    "input.fewer_tensors": input_estimates.by_fewer_tensors,
    "input.share_by_name": input_estimates.by_name,
    "input.without_workers": input_estimates.by_no_workers,
    "input.pin_less": estimates.UP_TO_ALL,
    "input.own_resource": estimates.on_other_cores,
    "input.lock_update": estimates.UP_TO_ALL,
    "input.lock_shared_part": estimates.UP_TO_ALL,
    "input.lock_copy": estimates.UP_TO_ALL,
    # Helper processes.
    "helpers.ask_together": estimates.by_asking_together,
    "helpers.ask_ahead": estimates.beside,
    "helpers.larger_requests": estimates.HALF,
    "helpers.send_arrays": estimates.UP_TO_ALL,
    # Python.
    "optimizer.on_gpu": estimates.value("share", 0.0),
    "left_on.no_collective_checks": estimates.without_collective_checks,
    "left_on.record_few_steps": estimates.without_profiling,
    "left_on.stop_tracer": estimates.without_tracer,
    "left_on.stop_tracing_memory": estimates.without_tracing,
    "left_on.stop_tracing": estimates.without_tracing,
    "left_on.no_memory_metrics": estimates.ALL,
    "left_on.no_anomaly_detection": estimates.known_part(1.0, least=0.5),
    "optimizer.fused": optimizer.by_fused_update,
    "optimizer.compiled": optimizer.by_fused_update,
    "optimizer.several_at_once": optimizer.by_calls_for_several,
    "optimizer.sparse_tables": optimizer.by_sparse_gradients,
    "interpreter.more_rarely": estimates.of_functions,
    "interpreter.keep_program": estimates.by_kept_program,
    "interpreter.compute_rarely": estimates.value("share", 0.0),
    "interpreter.cheaper_python": estimates.of_functions,
    "detours.computed_again": estimates.by_computing_once,
    **{f"detours.{way}": estimates.without_detour(freed) for way, freed in FREED.items()},
    f"detours.{ALL_PAIRS}": estimates.without_pairs,
    "interpreter.larger_operations": estimates.of_called_line,
    "interpreter.without_loop": estimates.of_loop,
    "interpreter.whole_sequence": estimates.of_sequence,
    "interpreter.several_at_once": estimates.by_larger_batch,
    "optimizer.larger_passes": estimates.by_larger_passes,
    "interpreter.larger_batch": estimates.by_larger_batch,
    "interpreter.done_alone": estimates.of_done_alone,
    "interpreter.own_process": estimates.on_other_cores,
    "interpreter.rest": estimates.UP_TO_ALL,
    "helpers.step_together": estimates.UP_TO_ALL,
    "interpreter.keep_compiled": estimates.UP_TO_ALL,
    "interpreter.collect_rarely": estimates.known_part(1.0, least=0.8),
    "interpreter.fewer_objects": estimates.UP_TO_ALL,
    "interpreter.collected_by_hand": estimates.UP_TO_ALL,
    "interpreter.no_call": estimates.by_no_call,
    "interpreter.shorten_outside": estimates.UP_TO_ALL,
    "interpreter.cheaper_operator": estimates.UP_TO_ALL,
    "interpreter.compile_once": estimates.UP_TO_ALL,
    # Evaluation.
    "evaluation.less_often": estimates.by_fewer_evaluations,
    "evaluation.subset": estimates.by_fewer_evaluations,
    "evaluation.larger_batches": estimates.HALF,
    # Cores.
    "cores.fewer_threads_beside": estimates.fewer_threads_beside,
    "cores.fewer_threads": estimates.by_fewer_threads,
    "cores.calm_helper": estimates.by_calmer_helper,
    "cores.fewer_workers": estimates.by_fewer_workers,
    "cores.move_neighbours": estimates.ALL,
    "cores.wider_mask": estimates.ALL,
    "cores.unbind_threads": estimates.ALL,
    "cores.raise_quota": estimates.ALL,
    "arithmetic.keep_memory": arithmetic_estimates.by_kept_memory,
    "arithmetic.keep_activations": estimates.without_recomputing,
    "arithmetic.freeze_rest": gradient_estimates.by_freezing,
    "arithmetic.detach_unused": gradient_estimates.without_gradients,
    "arithmetic.freeze_untrained": gradient_estimates.without_training,
    "arithmetic.all_instructions": arithmetic_estimates.by_all_instructions,
    "arithmetic.use_onednn": arithmetic_estimates.by_onednn,
    "arithmetic.drop_gradients": estimates.value("share", 0.5),
    "arithmetic.fill_less": estimates.value("share", 0.5),
    "arithmetic.take_parts_at_once": arithmetic_estimates.by_parts_at_once,
    "arithmetic.reduce_at_once": arithmetic_estimates.by_whole_reductions,
    "arithmetic.memory_bound": arithmetic_estimates.by_one_pass,
    "arithmetic.pad_ffts": arithmetic_estimates.by_padded_ffts,
    "arithmetic.single_precision": arithmetic_estimates.by_single_precision,
    "arithmetic.equal_work": estimates.value("share"),
    "arithmetic.more_threads": arithmetic_estimates.by_more_threads,
    # Input and output.
    "io.raise_limit": estimates.UP_TO_ALL,
    "io.save_behind": estimates.beside,
    "io.save_less_often": estimates.less_often,
    "io.save_unpacked": estimates.value("share", 0.5),
    "io.quiet_library": estimates.value("share", 0.8),
    "io.log_less_often": estimates.less_often,
    "io.another_thread": estimates.beside,
    "io.keep_in_memory": estimates.UP_TO_ALL,
    "io.copy_to_local": estimates.UP_TO_ALL,
    "io.buffered_reads": input_estimates.by_buffered_reads,
    "io.larger_files": estimates.UP_TO_ALL,
    "io.mapped_pieces": estimates.UP_TO_ALL,
    "io.no_flush": estimates.UP_TO_ALL,
    "io.at_the_same_time": estimates.UP_TO_ALL,
    "io.larger_objects": estimates.UP_TO_ALL,
    "io.local_copy": estimates.known_part(1.0, least=0.5),
    "io.no_python_objects": estimates.UP_TO_ALL,
    "io.more_memory": estimates.ALL,
    # Communication.
    "communication.fewer_channels": estimates.value("longer", 0.0),
    "communication.high_priority": estimates.value("share", 0.8),
    "communication.exchange_seldom": exchange_estimates.by_fewer_exchanges,
    "communication.exchange_once": exchange_estimates.by_fewer_exchanges,
    "communication.fewer_rounds": exchange_estimates.by_fewer_exchanges,
    "communication.large_buckets": exchange_estimates.by_larger_units,
    "communication.exchange_rarely": estimates.value("share", 0.0),
    "communication.keep_buffers": estimates.value("share", 0.5),
    "communication.gather_tensors": exchange_estimates.of_objects,
    "communication.half_precision": estimates.HALF,
    "communication.one_process": exchange_estimates.by_one_process,
    "communication.overlap": estimates.UP_TO_ALL,
    "communication.sharded_half_precision": estimates.HALF,
    "communication.shard_within_host": estimates.UP_TO_ALL,
    "communication.prefetch_parameters": estimates.UP_TO_ALL,
    "communication.gather_once": estimates.known_part(exchange_estimates.OF_THREE, least=0.0),
    "communication.use_ddp": estimates.UP_TO_ALL,
    "communication.send_as_one": estimates.UP_TO_ALL,
    "remote_calls.one_call": estimates.UP_TO_ALL,
    "communication.use_buckets": estimates.UP_TO_ALL,
    "communication.no_data_parallel": estimates.UP_TO_ALL,
    "tensor_parallel.smaller_groups": exchange_estimates.by_smaller_groups,
    "tensor_parallel.half_precision": exchange_estimates.half_of_layers,
    "tensor_parallel.larger_batch": exchange_estimates.half_of_layers,
    "all_to_all.within_host": estimates.UP_TO_ALL,
    "all_to_all.smaller_groups": exchange_estimates.by_smaller_all_to_all,
    "all_to_all.compute_meanwhile": estimates.UP_TO_ALL,
    # What a GPU works at.
    "gpu.more_micro_batches": estimates.half_of_waiting,
    "gpu.checkpoint_less": estimates.without_checkpoints,
    "gpu.checkpoint_selectively": estimates.value("again", 0.5),
    "gpu.larger_batch": estimates.UP_TO_ALL,
    "gpu.merge_kernels": estimates.UP_TO_ALL,
    "gpu.bfloat16": estimates.by_tensor_cores("bf16"),
    "gpu.float16": estimates.by_tensor_cores("fp16"),
    "gpu.tf32": estimates.by_tensor_cores("tf32"),
    "gpu.allow_tf32_again": estimates.by_tensor_cores("tf32"),
    "gpu.halve_bytes": estimates.HALF,
    "gpu.fuse": estimates.UP_TO_ALL,
    "gpu.cool": estimates.ALL,
    "gpu.power_supply": estimates.ALL,
    "gpu.power_limit": estimates.ALL,
    "gpu.unlock_clocks": estimates.ALL,
    "gpu.own_gpu": estimates.ALL,
    # What a GPU waits for.
    "gpu_idle.cuda_graphs": estimates.by_graphs,
    "gpu_idle.between_graphs": estimates.UP_TO_ALL,
    "gpu_idle.larger_batch": estimates.by_larger_batch,
    "gpu_idle.keep_values": estimates.of_line,
    "gpu_idle.pin_batches": estimates.UP_TO_ALL,
    "gpu_idle.overlap_copies": estimates.by_overlap,
    "gpu_idle.make_on_gpu": estimates.UP_TO_ALL,
    "gpu_idle.growing_segments": estimates.UP_TO_ALL,
    "gpu_idle.keep_cache": estimates.UP_TO_ALL,
    # Health.
    "health.mend_pcie": estimates.missing_link,
    "health.mend_nvlink": estimates.part_value("down"),
    "health.raise_core_clock": estimates.part_value("below"),
    "health.leave_host": estimates.part_value("stolen"),
}

# Of these the ones that are a choice of what is trained, not only of how.
LARGER_BATCH = frozenset(
    ("interpreter.larger_batch", "gpu.larger_batch", "gpu_idle.larger_batch", "tensor_parallel.larger_batch")
)
# And the ones after which a step takes more samples than before, or more passes to one update: what they bring shows
# in samples per second, and not in how long a step takes.
CHANGES_STEP = LARGER_BATCH | {
    "interpreter.several_at_once", "helpers.step_together", "communication.exchange_seldom"
}  # fmt: skip
# What else is given up for a gain, where the advice itself does not say so.
PRICES: Mapping[str, Message] = {
    **dict.fromkeys(
        (*LARGER_BATCH, "interpreter.several_at_once", "communication.exchange_seldom"), say("prices.updates")
    ),
    "io.save_less_often": say("prices.lost_work"),
    "workers.take_over": say("prices.processes"),
    **dict.fromkeys(("evaluation.less_often", "communication.exchange_rarely"), say("prices.seen_later")),
    "evaluation.subset": say("prices.coarser"),
}
# And those that compile a model, or a part of the training.
COMPILING = frozenset(
    (
        "interpreter.compile_model",
        "interpreter.whole_graph",
        "arithmetic.memory_bound",
        "gpu.fuse",
        "gpu.merge_kernels",
        "optimizer.compiled",
    )
)
