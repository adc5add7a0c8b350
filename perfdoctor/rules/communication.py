"""Between ranks: bytes, latency, DataParallel, and ranks that were not seen."""

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.facts import Facts
from perfdoctor.rules.making import REPORTED, amount, finding, percent, switched_on, takes, uses_gpu, variable

# Switches that take a fast path away from NCCL, with the value that does it ("" for any).
_NCCL_OFF = (
    ("NCCL_P2P_DISABLE", "GPUs of one host then talk through host memory instead of NVLink or PCIe."),
    ("NCCL_SHM_DISABLE", "Ranks of one host then talk through the network stack."),
    ("NCCL_IB_DISABLE", "Hosts then talk over TCP instead of InfiniBand or RoCE."),
)


def transport_fixes(facts: Facts) -> list[Fix]:
    """Settings of the transport that are in the way."""
    fixes = [
        Fix(f"Unset {name}", f"It is set to {variable(facts, name)}. {why}", f"unset {name}")
        for name, why in _NCCL_OFF
        if switched_on(facts, name)
    ]
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        several_hosts = (_whole(facts, "WORLD_SIZE") or 0) > (_whole(facts, "LOCAL_WORLD_SIZE") or 0) > 0
        if variable(facts, name) == "lo" and several_hosts:
            fixes.append(
                Fix(
                    f"Name the fast interface in {name}",
                    "It is set to lo, which reaches no other host.",
                    f"{name}=eth0  # see: ip link",
                )
            )
    if (variable(facts, "NCCL_DEBUG") or "").upper() == "TRACE":
        fixes.append(Fix("Lower NCCL_DEBUG", "It is set to TRACE: every call is logged.", "NCCL_DEBUG=WARN"))
    return fixes


def _whole(facts: Facts, name: str) -> int | None:
    value = variable(facts, name)
    return int(value) if value is not None and value.isdigit() else None


# From this part of all bytes on, the ranks talk within one host.
_WITHIN = 0.9


def _compress(facts: Facts) -> Fix:
    """Gradients in 16 bits, in the type that the backend carries: DDP refuses bfloat16 without NCCL (torch 2.13)."""
    nccl = facts.settings.get("backend", "nccl" if uses_gpu(facts) else "") == "nccl"
    kind = "bf16" if nccl else "fp16"
    why = "Half the bytes for the same gradients."
    if not nccl:
        why += " float16 overflows above 65,504: scale the loss down if gradients come near."
    if facts.settings.get("ddp") == "no":
        dtype = "bfloat16" if nccl else "float16"
        change = (
            f"small = gradient.to(torch.{dtype})\ntorch.distributed.all_reduce(small)\n"
            "gradient.copy_(small)"
        )
    else:
        change = (
            f"from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import {kind}_compress_hook\n"
            f"model.register_comm_hook(state=None, hook={kind}_compress_hook)"
        )
    return Fix("Send gradients in 16 bits", why, change)


def _one_process(facts: Facts, world: int) -> list[Fix]:
    """Ranks that share one host's cores need not exchange anything."""
    within = (facts.number("loopback") or 0.0) >= _WITHIN and len(facts.trainers) == world > 1
    if not within or uses_gpu(facts) or facts.settings.get("backend") == "nccl":
        return []
    return [
        Fix(
            "Train in one process",
            f"{_all(world)} ranks compute on the cores of this one host: one process with as many threads and the "
            "whole batch does the same work and exchanges nothing.",
            f"python train.py   # batch_size * {world}, OMP_NUM_THREADS not below the number of cores",
        )
    ]


def _all(world: int) -> str:
    return "Both" if world == 2 else f"All {world}"


def _moved(facts: Facts) -> str:
    """What goes where, as a sentence; empty where it was not measured."""
    if facts.number("received") is None:
        return ""
    loopback = facts.number("loopback")
    way = "the loopback of this host" if loopback is not None and loopback >= _WITHIN else "the network"
    return f" {amount(facts, 'received')} go through {way}."


_OVERLAP = Fix(
    "Let the exchange overlap with the backward pass",
    "DistributedDataParallel sends a bucket as soon as its gradients are there; unused parameters "
    "and very large buckets delay that.",
    "DistributedDataParallel(model, find_unused_parameters=False, gradient_as_bucket_view=True)",
)


_IN_DDP = Fix(
    "Leave the gradients to DistributedDataParallel",
    "It sends gradients during the backward pass; here no frame of it was seen.",
    "model = torch.nn.parallel.DistributedDataParallel(model)  # in place of exchanging gradients by hand",
)
_ACCUMULATE = """\
with (model.no_sync() if step % 4 else contextlib.nullcontext()):
    (loss / 4).backward()
if step % 4 == 0:
    optimizer.step(); optimizer.zero_grad()"""
_ACCUMULATE_BY_HAND = """\
(loss / 4).backward()
if step % 4 == 0:
    ...  # exchange the gradients as now, then optimizer.step(); optimizer.zero_grad()"""


def bandwidth(facts: Facts) -> Finding | None:
    """All ranks are in the collective and move bytes."""
    cause = "communication.bandwidth"
    if facts.share(cause) < REPORTED:
        return None
    world = _whole(facts, "WORLD_SIZE") or len(facts.trainers)
    by_hand = facts.settings.get("ddp") == "no"
    fixes = [
        *transport_fixes(facts),
        *_one_process(facts, world),
        Fix(
            "Exchange gradients every few steps",
            f"{_all(world)} ranks are in the exchange for "
            f"{percent(facts.share(cause))} of the time.{_moved(facts)} "
            "Accumulating over 4 steps sends a quarter of the bytes.",
            _ACCUMULATE_BY_HAND if by_hand else _ACCUMULATE,
        ),
        _compress(facts),
        *([_IN_DDP] if by_hand else [_OVERLAP]),
    ]
    if uses_gpu(facts):
        fixes.append(
            Fix(
                "Make sure that NCCL is used",
                "It moves data between GPUs directly; other backends go through host memory.",
                "torch.distributed.init_process_group('nccl')  # torch.distributed.get_backend() tells "
                "which is in use",
            )
        )
    return finding(
        facts,
        cause,
        takes(facts, cause, "Moving data between ranks"),
        "received loopback sent bytes_per_packet retransmits gpu_nvlink_received gpu_pcie_received "
        "traced_exposed traced_hidden traced_collectives",
        fixes,
        "Run some steps under model.no_sync(): if they take as long as before, the exchange is not the "
        "cause.",
    )


_FEWER_METRICS = Fix(
    "Reduce metrics rarely, and drop barriers",
    "A metric that is only printed need not be exact on every rank in every step; barrier() only waits.",
    "if step % 100 == 0: torch.distributed.all_reduce(metrics)",
)


_IN_BUCKETS = Fix(
    "Leave the gradients to DistributedDataParallel",
    "It gathers gradients into buckets of 25 MB and sends them during the backward pass.",
    "model = DistributedDataParallel(model, bucket_cap_mb=25)",
)
_SELDOM = Fix(
    "Exchange gradients every few steps",
    "DistributedDataParallel exchanges gradients in each backward pass, and the pass waits for the round of messages "
    "that it takes, however small the model. Accumulating over 4 steps needs a quarter of the rounds, and so does a "
    "batch of 4 times the size.",
    _ACCUMULATE,
)
_LARGE_BUCKETS = Fix(
    "Keep its buckets large",
    "Each bucket is an exchange of its own.",
    "DistributedDataParallel(model)  # bucket_cap_mb is 25 unless it is set",
)


def _by_hand(facts: Facts) -> float:
    """The part of the time in collectives that the script itself calls."""
    spent = [trainer.phases.get("gradient sync", 0.0) for trainer in facts.trainers]
    return sum(spent) / max(1, len(spent))


def latency(facts: Facts) -> Finding | None:
    """Many small collectives."""
    cause = "communication.latency"
    if facts.share(cause) < REPORTED:
        return None
    size = (
        f" {amount(facts, 'bytes_per_packet')} are in a packet on average."
        if facts.number("bytes_per_packet") is not None
        else ""
    )
    small = Fix(
        "Send many small tensors as one",
        f"Every collective costs a round of wake-ups, however few bytes it moves: {percent(facts.share(cause))} of the "
        f"time.{size}",
        "flat = torch._utils._flatten_dense_tensors(tensors)\n"
        "torch.distributed.all_reduce(flat)\n"
        "for old, new in zip(tensors, torch._utils._unflatten_dense_tensors(flat, tensors)): "
        "old.copy_(new)",
    )
    if facts.settings.get("ddp") != "yes":
        fixes = [small, _IN_BUCKETS]
    elif _by_hand(facts) < facts.share(cause) / 2:
        fixes = [*_one_process(facts, _whole(facts, "WORLD_SIZE") or len(facts.trainers)), _SELDOM, _LARGE_BUCKETS]
    else:
        fixes = [small]
    return finding(
        facts,
        cause,
        takes(facts, cause, "Exchanging many small messages between ranks"),
        "packets bytes_per_packet received trainer_switches traced_exposed traced_hidden traced_collectives",
        [*transport_fixes(facts), *fixes, _FEWER_METRICS],
        "Send ten times the bytes in each exchange: if a step takes nearly as long as before, the number of "
        "exchanges costs; if it takes ten times as long, the bytes do.",
    )


def data_parallel(facts: Facts) -> Finding | None:
    """``nn.DataParallel``'s scatter, replicate and gather in one process."""
    cause = "communication.data_parallel"
    if facts.share(cause) < REPORTED:
        return None
    gpus = facts.number("gpus")
    fixes = [
        Fix(
            "Use DistributedDataParallel",
            "nn.DataParallel copies the model to every GPU in each step and runs "
            f"{f'all {gpus:g} GPUs' if gpus else 'all GPUs'} from one Python process.",
            f"torchrun --nproc-per-node={f'{gpus:g}' if gpus else 'gpu'} train.py\n"
            "# in train.py: init_process_group('nccl'); model = "
            "DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])",
        )
    ]
    return finding(
        facts,
        cause,
        takes(facts, cause, "nn.DataParallel's scatter, replicate and gather"),
        "gpus gpu_busy trainer_running gpu_nvlink_received gpu_pcie_received",
        fixes,
        "Run on one GPU without nn.DataParallel: if the samples per second fall in proportion, it did no "
        "harm.",
    )


def unattributed_wait(facts: Facts) -> Finding | None:
    """Waiting for a rank that was not observed."""
    cause = "communication.unattributed_wait"
    if facts.share(cause) < REPORTED:
        return None
    world, seen = _whole(facts, "WORLD_SIZE"), len(facts.trainers)
    missing = (
        f"{seen} of {world} ranks were watched"
        if world is not None and world > seen
        else f"{seen} ranks were watched"
    )
    fixes = [
        Fix(
            "Watch the other ranks too",
            f"The watched ranks wait in collectives for {percent(facts.share(cause))} of the time, and "
            f"{missing}: one that was not may be late, or the exchange itself slow.",
            "perfdoctor attach PID   # on each host, at the same time; of traces: perfdoctor analyze FOLDER",
        )
    ]
    return finding(
        facts,
        cause,
        takes(facts, cause, "Waiting for ranks that were not watched"),
        "received sent traced_exposed traced_hidden traced_collectives",
        fixes,
        "Watch all ranks: if none of them is late, the exchange itself takes the time.",
    )


COMMUNICATION_RULES = (bandwidth, latency, data_parallel, unattributed_wait)
