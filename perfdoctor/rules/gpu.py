"""What a busy GPU is busy with (arithmetic, memory traffic, too little work, a costly precision), and what slows it."""

from collections.abc import Iterator

from perfdoctor.causes import (
    GPU_COMPUTE,
    GPU_CONTENTION,
    GPU_THROTTLED,
    LOW_OCCUPANCY,
    MEMORY_BANDWIDTH,
    NO_TENSOR_CORES,
)
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import environment, hardware, thresholds
from perfdoctor.messages import say
from perfdoctor.rules.arithmetic import detach_unused, fill_the_pipeline, freeze_rest, pad_less
from perfdoctor.rules.case import Case
from perfdoctor.rules.communication import use_fewer_channels
from perfdoctor.rules.rule import Rule

# What a GPU's own work is attributed to; recomputed work is in all of them.
_WORK = (GPU_COMPUTE, NO_TENSOR_CORES, MEMORY_BANDWIDTH, LOW_OCCUPANCY)


def _compute_less(case: Case) -> Iterator[Advice]:
    times = case.number("traced_same_kernels")
    if times is not None:  # a rank that computes longer than the others
        yield advise("gpu.check_late_gpu", times=times) if times >= thresholds.SLOWER_GPU else advise("gpu.same_work")
    yield from fill_the_pipeline(case)
    yield from use_fewer_channels(case)
    yield from _keep_activations(case)
    yield from pad_less(case)
    yield from freeze_rest(case)
    yield from detach_unused(case)
    yield from _use_float16(case)
    yield from _try_mixed_precision(case)


def _use_float16(case: Case) -> Iterator[Advice]:
    """For traced matrix kernels in full precision on a GPU whose tensor cores take half precision only."""
    capability, full = case.setting("compute_capability"), case.number("traced_matrix_fp32")
    if capability and full and full >= thresholds.MOSTLY and hardware.needs_float16(case.gpu_name, capability):
        busy, trains = case.measured("gpu_tensor"), case.trains
        yield advise("gpu.float16", busy=busy, capability=capability, loop=case.loop, trains=trains)


def _has_bfloat16(case: Case) -> bool:
    """Whether the GPU computes in bfloat16, or nobody knows."""
    capability = case.setting("compute_capability")
    return capability is None or capability >= hardware.AMPERE


def _try_mixed_precision(case: Case) -> Iterator[Advice]:
    """Where neither counters nor kernels say in which precision it computes; a GPU of unknown model may have none."""
    capability = case.setting("compute_capability")
    known = case.number("gpu_tensor") is not None or case.number("traced_kernel_time") is not None
    if not known and capability is not None and capability >= hardware.VOLTA:
        yield advise("gpu.try_mixed_precision", bfloat16=_has_bfloat16(case), loop=case.loop)


def _keep_activations(case: Case) -> tuple[Advice, ...]:
    """What to keep instead of computing it again; nothing where traces show no such work, or little."""
    again = (case.number("traced_recomputed") or 0.0) * sum(map(case.share, _WORK))
    if again < thresholds.REPORTED_SHARE:
        return ()
    used = case.gpu_memory
    full = used is not None and used > thresholds.FULL_MEMORY
    fewer = advise("gpu.checkpoint_less", again=again, used=used, full=full, loop=case.loop)
    selective = advise("gpu.checkpoint_selectively", again=again)
    return (selective, fewer) if full else (fewer, selective)


def level_ranks(kind: str, culprit: int | None) -> tuple[Advice, ...]:
    """Advice for ranks of unequal work, as a replay of their operations shows.

    Args:
        kind: ``rank``, ``stage`` or ``changing``.
        culprit: number of the rank or stage, None where there is not a single one.
    """
    if kind == "rank":
        return (advise("gpu.compare_kernels"), advise("gpu.leave_rank_out", rank=culprit))
    return (advise("gpu.move_layers", stage=culprit) if kind == "stage" else advise("gpu.same_cost"),)


def _move_less_memory(case: Case) -> Iterator[Advice]:
    if not case.compiled:
        yield advise("gpu.fuse", memory=case.measured("gpu_dram"), tensor=case.measured("gpu_tensor"))
    halved = sum(case.number(f"traced_matrix_{kind}") or 0.0 for kind in ("bf16", "fp16", "fp8"))
    if halved < thresholds.MOSTLY:
        yield advise("gpu.halve_bytes", bfloat16=_has_bfloat16(case), loop=case.loop, trains=case.trains)
    # Attention and convolutions: where kernels were traced, only what they ask for.
    traced = case.number("traced_kernel_time") is not None
    softmax, layout = case.number("traced_softmax"), case.number("traced_layout")
    if softmax or not traced:
        yield advise("gpu.fused_attention", softmax=softmax)
    if layout or (not traced and case.settings.get("convolutions") == "yes"):
        yield advise("gpu.channels_last", layout=layout)


def _fill_the_gpu(case: Case) -> tuple[Advice, ...]:
    used = case.gpu_memory
    larger = advise("gpu.larger_batch", active=case.measured("gpu_sm"), used=used, loader=case.may_have_loader)
    if case.compiled:
        return (larger,)
    merged = advise("gpu.merge_kernels")
    return (larger, merged) if used is None or used < thresholds.ROOM_FOR_BATCH else (merged, larger)


def _left_of_low_occupancy(case: Case) -> float | None:
    """Twice the work in the same time; where counters were read, the share is already what a fix frees."""
    return None if case.number("traced_kernel_time") is None else 1 - case.share(LOW_OCCUPANCY) / 2


def _use_tensor_cores(case: Case) -> Iterator[Advice]:
    capability, busy = case.setting("compute_capability"), case.measured("gpu_tensor")
    if case.variable(environment.TF32_OVERRIDE) == "0":
        yield advise("gpu.allow_tf32_again", name=environment.TF32_OVERRIDE)
    if capability is None or capability >= hardware.AMPERE:
        yield advise("gpu.bfloat16", busy=busy, loop=case.loop, trains=case.trains)
        yield advise("gpu.tf32")
    else:
        yield advise("gpu.float16", busy=busy, capability=capability, loop=case.loop, trains=case.trains)


def _left_with_tensor_cores(case: Case) -> float | None:
    """As fast as tensor cores are; where counters were read, the share is already what a fix frees."""
    if case.number("traced_kernel_time") is None:
        return None
    share = case.share(NO_TENSOR_CORES)
    return 1 - share + share / hardware.tensor_core_speedup(case.gpu_name, case.setting("compute_capability"))


def _raise_clocks(case: Case) -> Iterator[Advice]:
    slow = case.number("gpu_clock_deficit")
    power, most_power = case.measured("gpu_power"), case.measured("gpu_power_limit")
    limits = {
        "heat": advise("gpu.cool", slow=slow, temperature=case.measured("gpu_temperature")),
        "hardware": advise("gpu.power_supply", slow=slow),
        "power": advise("gpu.power_limit", slow=slow, power=power, limit=most_power),
    }
    # The hardware's flag is set beside that of heat, and any well-fed GPU is held at its power limit.
    limit = next((limit for limit in limits if (case.number(f"gpu_limited_by_{limit}") or 0.0) > 0), None)
    if limit is not None:
        yield limits[limit]
    yield advise("gpu.unlock_clocks")


def _share_less(case: Case) -> Iterator[Advice]:
    others, use = case.measured("gpu_foreign_processes"), case.number("gpu_foreign_sm")
    yield advise("gpu.own_gpu", others=others, use=use)
    if not case.switched_on(environment.MPS_PIPE):
        yield advise("gpu.start_mps")


GPU_RULES = (
    Rule(
        GPU_COMPUTE,
        say("gpu.computing"),
        (
            "gpu_busy", "traced_same_kernels", "traced_busy", "traced_beside", "traced_lengthened",
            "traced_lengthened_step", "traced_behind", "traced_bus_alone", "traced_bus_behind", "traced_recomputed",
            "traced_memory", "gpu_memory_share", "gpu_sm", "gpu_tensor", "traced_tensor_cores", "traced_matrix_fp8",
            "traced_matrix_bf16", "traced_matrix_fp16", "traced_matrix_tf32", "traced_matrix_fp32",
            "traced_matrix_fp64", "roofline", "roofline_1", "roofline_2", "roofline_3", "gpu_dram", "gpu_power",
            "gpu_power_limit",
        ),
        _compute_less,
        say("gpu.computing_refuted"),
    ),
    Rule(
        MEMORY_BANDWIDTH,
        say("gpu.moving_memory"),
        (
            "gpu_dram", "gpu_tensor", "gpu_sm", "gpu_busy", "traced_busy", "traced_kernel_time", "traced_softmax",
            "traced_fused_attention", "traced_layout", "traced_beside", "traced_lengthened", "traced_recomputed",
            "roofline",
        ),
        _move_less_memory,
        say("gpu.moving_memory_refuted"),
    ),
    Rule(
        LOW_OCCUPANCY,
        say("gpu.small_kernels"),
        (
            "gpu_sm", "gpu_occupancy", "gpu_busy", "gpu_power", "gpu_memory_share", "traced_kernel_time",
            "traced_short_kernels", "roofline",
        ),
        _fill_the_gpu,
        say("gpu.small_kernels_refuted"),
        left=_left_of_low_occupancy,
    ),
    Rule(
        NO_TENSOR_CORES,
        say("gpu.full_precision"),
        (
            "gpu_tensor", "traced_tensor_cores", "traced_matrix_fp8", "traced_matrix_bf16", "traced_matrix_fp16",
            "traced_matrix_tf32", "traced_matrix_fp32", "traced_matrix_fp64", "roofline", "roofline_1", "roofline_2",
            "roofline_3", "gpu_fp32", "gpu_sm", "gpu_dram", "traced_busy",
        ),
        _use_tensor_cores,
        say("gpu.full_precision_refuted"),
        left=_left_with_tensor_cores,
    ),
    Rule(
        GPU_THROTTLED,
        say("gpu.low_clocks"),
        (
            "gpu_clock", "gpu_clock_max", "gpu_clock_deficit", "gpu_limited_by_power", "gpu_limited_by_heat",
            "gpu_limited_by_hardware", "gpu_power", "gpu_power_limit", "gpu_temperature",
        ),
        _raise_clocks,
        say("gpu.low_clocks_refuted"),
    ),
    Rule(
        GPU_CONTENTION,
        say("gpu.sharing"),
        ("gpu_foreign_processes", "gpu_foreign_sm", "gpu_busy", "gpu_memory_share"),
        _share_less,
        say("gpu.sharing_refuted"),
    ),
)  # fmt: skip
