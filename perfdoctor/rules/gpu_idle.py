"""What leaves a GPU idle: slow launches, waits for its queue to drain, copies, full memory, and the job's start."""

from collections.abc import Iterator

from perfdoctor.causes import HOST_TRANSFER, KERNEL_LAUNCH, MEMORY_PRESSURE, STARTUP, SYNCHRONIZATION
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import environment, thresholds
from perfdoctor.messages import Message, say
from perfdoctor.rules.case import Case
from perfdoctor.rules.interpreter import compile_whole, replace_loop
from perfdoctor.rules.left_on import stop_debugging, unset
from perfdoctor.rules.optimizer import fuse_optimizer
from perfdoctor.rules.rule import PROFILER_COST, Rule


def _launch_less(case: Case) -> Iterator[Advice]:
    yield from unset(case, environment.LAUNCH_BLOCKING, say("gpu_idle.every_launch_waits"))
    yield from stop_debugging(case)
    yield from compile_whole(case)
    yield from replace_loop(case, KERNEL_LAUNCH)
    if case.in_graphs:
        yield advise("gpu_idle.between_graphs", line=case.hot_line(KERNEL_LAUNCH))
    else:
        yield advise("gpu_idle.cuda_graphs")
    yield from fuse_optimizer(case)
    yield advise("gpu_idle.larger_batch", used=case.gpu_memory, loader=case.may_have_loader)


def _wait_less(case: Case) -> Iterator[Advice]:
    yield from unset(case, environment.LAUNCH_BLOCKING, say("gpu_idle.every_launch_waits"))
    yield advise("gpu_idle.keep_values", line=case.hot_line(SYNCHRONIZATION))
    yield advise("gpu_idle.copy_to_pinned")


def _copy_less(case: Case) -> Iterator[Advice]:
    pinned = case.settings.get("pin_thread") == "yes" or case.number("traced_pageable") == 0
    yield from unset(case, environment.LAUNCH_BLOCKING, say("gpu_idle.no_copy_overlaps"))
    pin = advise("gpu_idle.pin_batches", loader=case.may_have_loader)
    yield advise("gpu_idle.overlap_copies") if pinned else pin
    yield advise("gpu_idle.fewer_bytes", received=case.measured("gpu_pcie_received"))
    yield advise("gpu_idle.make_on_gpu")


def _need_less_memory(case: Case) -> Iterator[Advice]:
    options = " ".join(case.variable(name) or "" for name in environment.ALLOCATOR)
    used = case.number("gpu_memory_share")
    yield from unset(case, environment.NO_CACHING, say("gpu_idle.every_tensor_allocates"))
    grows = environment.GROWING_SEGMENTS in options.lower().replace(" ", "")
    grow = () if grows else (advise("gpu_idle.growing_segments", used=used),)
    keep = advise("gpu_idle.keep_cache")
    has_room = used is not None and used < thresholds.FULL_GPU  # then somebody gives it back who need not
    yield from (keep, *grow) if has_room else (*grow, keep)
    yield advise("gpu_idle.less_memory", used=used)


def _look_later(case: Case) -> Iterator[Advice]:
    if case.share(STARTUP) >= thresholds.WARMING_UP:
        yield advise("gpu_idle.trace_later")
    yield advise("gpu_idle.keep_caches", compiling=bool(case.number("traced_first_compiling")))


def _says_nothing_of_later(case: Case) -> Iterator[Message]:
    yield say("gpu_idle.not_projected", fills=case.share(STARTUP) >= thresholds.WARMING_UP)


def _nothing_is_freed(case: Case) -> float:
    """Later steps do none of it, so whatever it takes, training gets no faster without it."""
    return 1.0


GPU_IDLE_RULES = (
    Rule(
        KERNEL_LAUNCH,
        say("gpu_idle.launching"),
        (
            "gpu_busy", "gpu_sm", "gpu_power", "trainer_running", "trainer_run_delay", "traced_busy", "traced_kernels",
            "traced_kernel_time", "traced_short_kernels", "traced_operators", "traced_launch_delay",
            "traced_optimizer_kernels", *PROFILER_COST,
        ),
        _launch_less,
        say("gpu_idle.launching_refuted"),
    ),
    Rule(
        SYNCHRONIZATION,
        say("gpu_idle.draining"),
        ("gpu_busy", "gpu_sm", "trainer_running", "traced_waits", "traced_waiting", "traced_busy"),
        _wait_less,
        say("gpu_idle.draining_refuted"),
    ),
    Rule(
        HOST_TRANSFER,
        say("gpu_idle.copying"),
        (
            "gpu_pcie_received", "gpu_pcie_sent", "gpu_busy", "traced_copies", "traced_blocked", "traced_pageable",
            "traced_busy", "exposed_rest", "overlap",
        ),
        _copy_less,
        say("gpu_idle.copying_refuted"),
    ),
    Rule(
        MEMORY_PRESSURE,
        say("gpu_idle.out_of_memory"),
        ("gpu_memory", "gpu_memory_share", "gpu_busy", "traced_allocations", "traced_busy"),
        _need_less_memory,
        say("gpu_idle.out_of_memory_refuted"),
    ),
    Rule(
        STARTUP,
        say("gpu_idle.done_once"),
        ("traced_startup", "traced_first_compiling", "traced_busy"),
        _look_later,
        say("gpu_idle.done_once_refuted"),
        remarks=_says_nothing_of_later,
        left=_nothing_is_freed,
    ),
)  # fmt: skip
