"""Between ranks: bytes, messages, DataParallel, unobserved ranks, and collectives that share a GPU with kernels."""

from collections.abc import Iterator
from statistics import fmean

from perfdoctor.causes import BANDWIDTH, DATA_PARALLEL, LATENCY, UNOBSERVED_RANK
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import environment, thresholds
from perfdoctor.knowledge.libraries import DDP, FULLY_SHARD, SHARDED
from perfdoctor.messages import Message, say
from perfdoctor.rules.case import Case
from perfdoctor.rules.cores import sets_threads
from perfdoctor.rules.exchange_estimates import freed_in_one_process
from perfdoctor.rules.rule import Rule
from perfdoctor.rules.transport import (
    OF_BYTES,
    OF_MESSAGES,
    has_several_hosts,
    mend_transport,
    ranks_of_host,
    started_ranks,
    world_size,
)

# What shows exchanges that the script itself asks for.
_OF_SCRIPT = ("received", "loopback", "sent", "bytes_per_packet", "trainer_switches")


def use_fewer_channels(case: Case) -> Iterator[Advice]:
    """For kernels that take longer beside collectives."""
    longer, times = case.number("traced_lengthened"), case.number("traced_beside")
    if longer is None or times is None or longer < thresholds.REPORTED_SHARE:
        return
    step = case.measured("traced_lengthened_step")
    yield advise("communication.fewer_channels", times=times, longer=longer, step=step, network=_network(case))
    yield advise("communication.move_overlap", way=_way(case))


def _network(case: Case) -> Message | None:
    """What the network gives to a collective by itself, where kernels are what makes it slow."""
    alone, behind = case.measured("traced_bus_alone"), case.measured("traced_bus_behind")
    return say("communication.network_carries", alone=alone, behind=behind) if alone and behind else None


def _held_up_by_kernels(case: Case) -> float | None:
    """The share of the time by which kernels beside them lengthen collectives; None where that is not most of it."""
    share, saved = case.share(BANDWIDTH), case.number("traced_held_up")
    if saved is None or case.number("traced_behind") is None or saved < thresholds.MOSTLY * share:
        return None
    return min(saved, share)


def _say_what_holds_up(case: Case) -> Iterator[Message]:
    if _held_up_by_kernels(case) is not None:
        yield say("communication.held_up", network=_network(case))


def _keep_buffers(case: Case) -> Iterator[Advice]:
    """Of what DistributedDataParallel sends besides gradients."""
    part = case.number("sending_buffers")
    if part is not None and part >= thresholds.REPORTED_SHARE:
        yield advise("communication.keep_buffers", share=part)


def _send_fewer_bytes(case: Case) -> Iterator[Advice]:
    held_up = _held_up_by_kernels(case)
    if held_up is not None:
        times, network = case.number("traced_behind"), _network(case)
        yield advise("communication.high_priority", times=times, share=held_up, network=network)
        yield advise("communication.move_overlap", way=_way(case))
    yield from mend_transport(case)
    yield from _keep_buffers(case)
    yield from _train_in_one_process(case, BANDWIDTH)
    if case.settings.get("tensor_parallel") == "yes" and has_several_hosts(case):
        yield advise("tensor_parallel.split_within_host", ranks=ranks_of_host(case))
    yield from _shard_otherwise(case) if _is_sharded(case) else _replicate_otherwise(case)
    if case.uses_gpu and case.settings.get("backend") != "nccl":
        yield advise("communication.use_nccl")


def _exchanges_besides(case: Case) -> bool:
    """Whether the script exchanges much itself, where DistributedDataParallel does so with the gradients.

    That calls no collective in Python, but for a hook of the script's own; libraries that shard the model do.
    """
    return _way(case) == DDP and not _has_policy(case) and _is_by_script(case, BANDWIDTH)


def _is_by_script(case: Case, cause: str) -> bool:
    """Whether most of an exchange is in collectives that are called in Python."""
    return _spent_by_hand(case) >= thresholds.MOSTLY * case.share(cause)


def _exchange_less(case: Case) -> Iterator[Advice]:
    """What else than gradients the script exchanges."""
    objects = case.settings.get("object_collectives") == "yes"
    if objects:
        yield advise("communication.gather_tensors")
    yield advise("communication.exchange_rarely", line=case.hot_line(BANDWIDTH), share=_spent_by_hand(case))
    yield from mend_transport(case)


def _replicate_otherwise(case: Case) -> Iterator[Advice]:
    """Each rank has the whole model, and gradients are all that they exchange."""
    yield _exchange_seldom(case)
    # DDP refuses bfloat16 without NCCL (torch 2.13).
    nccl = case.settings.get("backend", "nccl" if case.uses_gpu else "") == "nccl"
    by_hand = _is_by_hand(case)
    if not _has_policy(case):
        yield advise("communication.half_precision", nccl=nccl, by_hand=by_hand, way=_way(case))
    if by_hand:
        yield advise("communication.use_ddp")
    else:
        yield advise("communication.overlap", way=_way(case))


def _shard_otherwise(case: Case) -> Iterator[Advice]:
    """Ranks gather each other's parameters, and each keeps a part of the gradients."""
    way, used = _way(case), case.gpu_memory
    if used is None or used < thresholds.ROOM_FOR_BATCH:
        yield advise("communication.gather_once", way=way, used=used)
    if not _has_policy(case):
        yield advise("communication.sharded_half_precision", way=way)
    yield advise("communication.prefetch_parameters", way=way)
    if has_several_hosts(case):
        yield advise("communication.shard_within_host", way=way, ranks=ranks_of_host(case))
    yield _exchange_seldom(case)


def _exchange_seldom(case: Case) -> Advice:
    return _exchange_once(case) or advise(
        "communication.exchange_seldom",
        world=world_size(case),
        share=case.share(BANDWIDTH),
        received=case.measured("received"),
        within=_is_within_host(case),
        sharded=_is_sharded(case),
        way=case.loop or _way(case),
    )


def _exchange_once(case: Case) -> Advice | None:
    """Where gradients are accumulated already, and each pass exchanges them all the same."""
    if (place := case.settings.get("exchanges_again")) is None:
        return None
    when = str(case.settings.get("updates_when", ""))
    return advise("communication.exchange_once", line=str(place), when=when, sharded=_is_sharded(case), way=_way(case))


def _way(case: Case) -> str:
    """How ranks share the model; "" where it is not known."""
    return str(case.settings.get("parallel", ""))


def _has_policy(case: Case) -> bool:
    """Whether the job says itself in which numbers its ranks exchange; what it says is not read."""
    return "exchange_policy" in case.settings


def _is_sharded(case: Case) -> bool:
    return _way(case) in SHARDED


def _is_by_hand(case: Case) -> bool:
    """Whether the script exchanges gradients itself: no library that would was seen."""
    return _way(case) == "no"


def _send_fewer_messages(case: Case) -> Iterator[Advice]:
    small, way = case.measured("bytes_per_packet"), _way(case)
    if environment.CHECKS_COLLECTIVES in environment.debugging(case.variable):
        yield advise("left_on.no_collective_checks")
    yield from mend_transport(case)
    yield from _keep_buffers(case)
    if case.settings.get("sync_batch_norm") == "yes":
        yield advise("communication.no_sync_batch_norm")
    if way == DDP:
        besides = [*exchange_rarely(case, LATENCY)]
        yield from besides
        if besides and case.settings.get("object_collectives") == "yes":
            yield advise("communication.gather_tensors")
    if way not in ("", "no") and not (way == DDP and _is_by_script(case, LATENCY)):
        yield from _train_in_one_process(case, LATENCY)
        if way == FULLY_SHARD:
            yield advise("communication.large_buckets", way=way)
        yield _exchange_once(case) or advise("communication.fewer_rounds", way=case.loop or way)
        if way == DDP:
            yield advise("communication.large_buckets", way=way)
    else:
        yield advise("communication.send_as_one", share=case.share(LATENCY), size=small)
        if way in ("", "no"):
            yield advise("communication.use_buckets")
    yield advise("communication.fewer_metrics")


def exchange_rarely(case: Case, cause: str) -> Iterator[Advice]:
    """What the script exchanges outside of the passes, for a norm or a metric."""
    share = min(case.share(cause), sum(part for _, part in case.exchanged_besides))
    if share >= thresholds.REPORTED_SHARE:
        yield advise("communication.exchange_rarely", line=case.exchanged_besides[0][0], share=share)


def _train_in_one_process(case: Case, cause: str) -> Iterator[Advice]:
    """Ranks that share one host's cores need not exchange anything."""
    if not freed_in_one_process(case, cause):
        return
    ranks = world_size(case)
    on_cores = not case.uses_gpu and case.settings.get("backend") != "nccl"
    if on_cores and _is_within_host(case) and len(case.trainers) == ranks > 1:
        yield advise(
            "communication.one_process",
            world=ranks,
            own_ranks="ranks_started" in case.settings,
            threads_set=sets_threads(case),
        )


def _is_within_host(case: Case) -> bool:
    return (case.number("loopback") or 0.0) >= thresholds.WITHIN_HOST


def _spent_by_hand(case: Case) -> float:
    """The part of the time that collectives which are called in Python take, without waits for ranks that are late.

    These may be in other collectives as well, so it is rather too little.
    """
    spent = [max(0.0, one.phases.get("gradient sync", 0.0) - sum(one.waited_for.values())) for one in case.trainers]
    return fmean(spent) if spent else 0.0


def _use_ddp(case: Case) -> Iterator[Advice]:
    yield advise("communication.no_data_parallel", gpus=case.number("gpus"))


def _watch_all_ranks(case: Case) -> Iterator[Advice]:
    share, seen = case.share(UNOBSERVED_RANK), len(case.trainers)
    yield advise("late_ranks.watch_all", share=share, seen=seen, world=world_size(case))


def _all_are_watched(case: Case) -> bool:
    return len(case.trainers) > 1 and len(case.trainers) == started_ranks(case)


def _find_late_rank(case: Case) -> Iterator[Advice]:
    share, traced = case.share(UNOBSERVED_RANK), case.number("traced_exposed") is not None
    yield advise("late_ranks.find_late_rank", share=share, world=len(case.trainers), traced=traced)


def _calls_remotely(case: Case) -> bool:
    """Whether ranks ask each other to run functions, and share no model in a way that exchanges anything."""
    return case.settings.get("remote_calls") == "yes" and _way(case) in ("", "no")


def _call_less(case: Case) -> Iterator[Advice]:
    yield from mend_transport(case)
    yield advise("remote_calls.one_call", line=case.hot_line(LATENCY) or case.hot_line(BANDWIDTH))


COMMUNICATION_RULES = (
    *(
        Rule(
            cause,
            say("remote_calls.waiting"),
            _OF_SCRIPT,
            _call_less,
            say("remote_calls.waiting_refuted"),
            applies=_calls_remotely,
        )
        for cause in (BANDWIDTH, LATENCY)
    ),
    Rule(
        BANDWIDTH,
        say("communication.besides_gradients"),
        _OF_SCRIPT,
        _exchange_less,
        say("communication.besides_gradients_refuted"),
        applies=_exchanges_besides,
    ),
    Rule(
        BANDWIDTH,
        say("communication.moving"),
        (*OF_BYTES, "traced_behind", "traced_held_up", "traced_bus_alone", "traced_bus_behind", "traced_beside"),
        _send_fewer_bytes,
        say("communication.moving_refuted"),
        remarks=_say_what_holds_up,
    ),
    Rule(
        LATENCY,
        say("communication.small_messages"),
        OF_MESSAGES,
        _send_fewer_messages,
        say("communication.small_messages_refuted"),
    ),
    Rule(
        DATA_PARALLEL,
        say("communication.scatter_and_gather"),
        ("gpus", "gpu_busy", "trainer_running", "gpu_nvlink_received", "gpu_pcie_received"),
        _use_ddp,
        say("communication.scatter_and_gather_refuted"),
    ),
    Rule(
        UNOBSERVED_RANK,
        say("late_ranks.unknown_rank"),
        ("traced_exposed", "traced_hidden", "traced_collectives", "traced_behind", "traced_held_up", "received"),
        _find_late_rank,
        say("late_ranks.unknown_rank_refuted"),
        applies=_all_are_watched,
    ),
    Rule(
        UNOBSERVED_RANK,
        say("late_ranks.unwatched_ranks"),
        (
            "received", "sent", "gpu_busy", "gpu_sm", "gpu_power", "gpu_power_limit", "traced_exposed", "traced_hidden",
            "traced_collectives", "traced_behind", "traced_held_up",
        ),
        _watch_all_ranks,
        say("late_ranks.unwatched_ranks_refuted"),
    ),
)  # fmt: skip
