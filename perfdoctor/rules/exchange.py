"""How ranks come to exchange fewer bytes, or fewer messages: the fixes for collectives that all ranks are in."""

from perfdoctor.diagnosis import Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.lookups import switched_on, uses_gpu, variable
from perfdoctor.rules.wording import amount, percent

# Switches that take a fast path away from NCCL, and what that means.
_NCCL_OFF = (
    ("NCCL_P2P_DISABLE", "GPUs of one host then talk through host memory instead of NVLink or PCIe."),
    ("NCCL_SHM_DISABLE", "Ranks of one host then talk through the network stack."),
    ("NCCL_IB_DISABLE", "Hosts then talk over TCP instead of InfiniBand or RoCE."),
)

# From this part of all bytes on, the ranks talk within one host.
_WITHIN = 0.9

_ACCUMULATE = """\
with (model.no_sync() if step % 4 else contextlib.nullcontext()):
    (loss / 4).backward()
if step % 4 == 0:
    optimizer.step(); optimizer.zero_grad()"""
_ACCUMULATE_BY_HAND = """\
(loss / 4).backward()
if step % 4 == 0:
    ...  # exchange the gradients as now, then optimizer.step(); optimizer.zero_grad()"""
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
_USE_NCCL = Fix(
    "Make sure that NCCL is used",
    "It moves data between GPUs directly; other backends go through host memory.",
    "torch.distributed.init_process_group('nccl')  # torch.distributed.get_backend() tells which is in use",
)


def fewer_bytes(case: Case, cause: str) -> list[Fix]:
    """For ranks that wait for bytes to be moved."""
    world = world_size(case) or len(case.trainers)
    by_hand = case.settings.get("ddp") == "no"
    fixes = [
        *_transport_fixes(case),
        *_one_process(case, world),
        Fix(
            "Exchange gradients every few steps",
            f"{_all(world)} ranks are in the exchange for {percent(case.share(cause))} of the time.{_moved(case)} "
            "Accumulating over 4 steps sends a quarter of the bytes.",
            _ACCUMULATE_BY_HAND if by_hand else _ACCUMULATE,
        ),
        _compress(case),
        _IN_DDP if by_hand else _OVERLAP,
    ]
    return [*fixes, _USE_NCCL] if uses_gpu(case) else fixes


def fewer_messages(case: Case, cause: str) -> list[Fix]:
    """For ranks that wait for one round of messages after another."""
    small = _as_one(case, cause)
    if case.settings.get("ddp") != "yes":
        fixes = [small, _IN_BUCKETS]
    elif _by_hand(case) < case.share(cause) / 2:
        fixes = [*_one_process(case, world_size(case) or len(case.trainers)), _SELDOM, _LARGE_BUCKETS]
    else:
        fixes = [small]
    return [*_transport_fixes(case), *fixes, _FEWER_METRICS]


def world_size(case: Case) -> int | None:
    """How many ranks the launcher started; None where its environment does not say."""
    return _whole(case, "WORLD_SIZE")


def _transport_fixes(case: Case) -> list[Fix]:
    """Settings of the transport that are in the way."""
    fixes = [
        Fix(f"Unset {name}", f"It is set to {variable(case, name)}. {why}", f"unset {name}")
        for name, why in _NCCL_OFF
        if switched_on(case, name)
    ]
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        several_hosts = (world_size(case) or 0) > (_whole(case, "LOCAL_WORLD_SIZE") or 0) > 0
        if variable(case, name) == "lo" and several_hosts:
            fixes.append(
                Fix(
                    f"Name the fast interface in {name}",
                    "It is set to lo, which reaches no other host.",
                    f"{name}=eth0  # see: ip link",
                )
            )
    if (variable(case, "NCCL_DEBUG") or "").upper() == "TRACE":
        fixes.append(Fix("Lower NCCL_DEBUG", "It is set to TRACE: every call is logged.", "NCCL_DEBUG=WARN"))
    return fixes


def _compress(case: Case) -> Fix:
    """Gradients in 16 bits, in the type that the backend carries: DDP refuses bfloat16 without NCCL (torch 2.13)."""
    nccl = case.settings.get("backend", "nccl" if uses_gpu(case) else "") == "nccl"
    kind = "bf16" if nccl else "fp16"
    why = "Half the bytes for the same gradients."
    if not nccl:
        why += " float16 overflows above 65,504: scale the loss down if gradients come near."
    if case.settings.get("ddp") == "no":
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


def _as_one(case: Case, cause: str) -> Fix:
    """Small tensors of one kind, laid end to end."""
    size = amount(case, "bytes_per_packet")
    return Fix(
        "Send many small tensors as one",
        f"Every collective costs a round of wake-ups, however few bytes it moves: {percent(case.share(cause))} of the "
        f"time.{f' {size} are in a packet on average.' if size else ''}",
        "flat = torch._utils._flatten_dense_tensors(tensors)\n"
        "torch.distributed.all_reduce(flat)\n"
        "for old, new in zip(tensors, torch._utils._unflatten_dense_tensors(flat, tensors)): old.copy_(new)",
    )


def _by_hand(case: Case) -> float:
    """The part of the time in collectives that the script itself calls."""
    spent = [trainer.phases.get("gradient sync", 0.0) for trainer in case.trainers]
    return sum(spent) / max(1, len(spent))


def _one_process(case: Case, world: int) -> list[Fix]:
    """Ranks that share one host's cores need not exchange anything."""
    within = (case.number("loopback") or 0.0) >= _WITHIN and len(case.trainers) == world > 1
    if not within or uses_gpu(case) or case.settings.get("backend") == "nccl":
        return []
    return [
        Fix(
            "Train in one process",
            f"{_all(world)} ranks compute on the cores of this one host: one process with as many threads and the "
            "whole batch does the same work and exchanges nothing.",
            f"python train.py   # batch_size * {world}, OMP_NUM_THREADS not below the number of cores",
        )
    ]


def _moved(case: Case) -> str:
    """What goes where, as a sentence; empty where it was not measured."""
    if case.number("received") is None:
        return ""
    loopback = case.number("loopback")
    way = "the loopback of this host" if loopback is not None and loopback >= _WITHIN else "the network"
    return f" {amount(case, 'received')} go through {way}."


def _all(world: int) -> str:
    return "Both" if world == 2 else f"All {world}"


def _whole(case: Case, name: str) -> int | None:
    """An environment variable of the job as a whole number; None if it is none."""
    value = variable(case, name)
    return int(value) if value is not None and value.isdigit() else None
