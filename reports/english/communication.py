"""Between ranks: bytes, messages, DataParallel, unobserved ranks, and collectives that share a GPU with kernels."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.english.phrases import amount, percent, then

_ACCUMULATE = """\
with (model.no_sync() if step % 4 else contextlib.nullcontext()):
    (loss / 4).backward()
if step % 4 == 0:
    optimizer.step(); optimizer.zero_grad()"""
_ACCUMULATE_BY_HAND = """\
(loss / 4).backward()
if step % 4 == 0:
    ...  # exchange the gradients as now, then optimizer.step(); optimizer.zero_grad()"""
_DETOURS = {
    "NCCL_P2P_DISABLE": "GPUs of one host then talk through host memory instead of NVLink or PCIe.",
    "NCCL_SHM_DISABLE": "Ranks of one host then talk through the network stack.",
    "NCCL_IB_DISABLE": "Hosts then talk over TCP instead of InfiniBand or RoCE.",
}


def fewer_channels(*, times: float, longer: float, step: Evidence | None, network: str | None) -> Fix:
    of_step = f", {amount(step)} of each step" if step else ""
    return Fix(
        "Give collectives fewer multiprocessors",
        f"Beside collectives kernels take {times:.2g} times as long as the same ones alone: {percent(longer)} of the "
        f"time{of_step}. Each channel of a collective occupies a multiprocessor, and all of them memory bandwidth."
        f"{then(network)}",
        """\
NCCL_MAX_CTAS=8 torchrun ...  # older NCCL: NCCL_MAX_NCHANNELS=8; recent NCCL: NCCL_CTA_POLICY=1 takes as few as suffice
# or for one process group:
options = torch.distributed.ProcessGroupNCCL.Options(); options.config.max_ctas = 8
torch.distributed.init_process_group('nccl', pg_options=options)""",
    )


def move_overlap() -> Fix:
    return Fix(
        "Move the overlap",
        "A collective that begins earlier, or beside kernels that leave multiprocessors and memory bandwidth free, has "
        "more time and disturbs less.",
        "DistributedDataParallel(model, bucket_cap_mb=...)  # smaller buckets begin earlier\n"
        "block.set_modules_to_backward_prefetch([next_block])  # fully_shard",
    )


def network_carries(*, alone: Evidence, behind: Evidence) -> str:
    return (
        f"The network is not to blame: it carries {amount(alone)} of a collective alone, and {amount(behind)} behind "
        "kernels."
    )


def held_up(*, network: str | None) -> str:
    return f"Most of that is because kernels run beside the collectives.{then(network)}"


def high_priority(*, times: float, share: float, network: str | None) -> Fix:
    return Fix(
        "Give collectives a stream of high priority",
        f"Behind kernels collectives take {times:.2g} times as long as the same ones alone, which costs "
        f"{percent(share)} of the time.{then(network)} A faster network would not help.",
        "options = torch.distributed.ProcessGroupNCCL.Options(is_high_priority_stream=True)\n"
        "torch.distributed.init_process_group('nccl', pg_options=options)",
    )


def moving() -> str:
    return "Moving data between ranks"


def moving_refuted() -> str:
    return "Run some steps under model.no_sync(): if they take as long as before, the exchange is not the cause."


def exchange_seldom(*, world: int, share: float, received: Evidence | None, within: bool, by_hand: bool) -> Fix:
    way = "the loopback of this host" if within else "the network"
    moved = f" {amount(received)} go through {way}." if received else ""
    return Fix(
        "Exchange gradients every few steps",
        f"{_all(world)} ranks are in the exchange for {percent(share)} of the time.{moved} Accumulating over 4 steps "
        "sends a quarter of the bytes.",
        _ACCUMULATE_BY_HAND if by_hand else _ACCUMULATE,
    )


def half_precision(*, nccl: bool, by_hand: bool) -> Fix:
    kind, dtype = ("bf16", "bfloat16") if nccl else ("fp16", "float16")
    range_of_it = "" if nccl else "float16 overflows above 65,504: scale the loss down if gradients come near."
    return Fix(
        "Send gradients in 16 bits",
        f"Half the bytes for the same gradients.{then(range_of_it)}",
        f"small = gradient.to(torch.{dtype})\ntorch.distributed.all_reduce(small)\ngradient.copy_(small)"
        if by_hand
        else f"from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import {kind}_compress_hook\n"
        f"model.register_comm_hook(state=None, hook={kind}_compress_hook)",
    )


def use_ddp() -> Fix:
    return Fix(
        "Leave the gradients to DistributedDataParallel",
        "It sends gradients during the backward pass; here no frame of it was seen.",
        "model = torch.nn.parallel.DistributedDataParallel(model)  # in place of exchanging gradients by hand",
    )


def overlap() -> Fix:
    return Fix(
        "Let the exchange overlap with the backward pass",
        "DistributedDataParallel sends a bucket as soon as its gradients are there; unused parameters and very large "
        "buckets delay that.",
        "DistributedDataParallel(model, find_unused_parameters=False, gradient_as_bucket_view=True)",
    )


def use_nccl() -> Fix:
    return Fix(
        "Make sure that NCCL is used",
        "It moves data between GPUs directly; other backends go through host memory.",
        "torch.distributed.init_process_group('nccl')  # torch.distributed.get_backend() tells which is in use",
    )


def small_messages() -> str:
    return "Exchanging many small messages between ranks"


def small_messages_refuted() -> str:
    return (
        "Send ten times the bytes in each exchange: if a step takes nearly as long as before, the number of exchanges "
        "costs; if it takes ten times as long, the bytes do."
    )


def send_as_one(*, share: float, size: Evidence | None) -> Fix:
    small = f" {amount(size)} are in a packet on average." if size else ""
    return Fix(
        "Send many small tensors as one",
        f"Every collective costs a round of wake-ups, however few bytes it moves: {percent(share)} of the time.{small}",
        "flat = torch._utils._flatten_dense_tensors(tensors)\n"
        "torch.distributed.all_reduce(flat)\n"
        "for old, new in zip(tensors, torch._utils._unflatten_dense_tensors(flat, tensors)): old.copy_(new)",
    )


def use_buckets() -> Fix:
    return Fix(
        "Leave the gradients to DistributedDataParallel",
        "It gathers gradients into buckets of 25 MB and sends them during the backward pass.",
        "model = DistributedDataParallel(model, bucket_cap_mb=25)",
    )


def fewer_rounds() -> Fix:
    return Fix(
        "Exchange gradients every few steps",
        "DistributedDataParallel exchanges gradients in each backward pass, and the pass waits for the round of "
        "messages that it takes, however small the model. Accumulating over 4 steps needs a quarter of the rounds, and "
        "so does a batch of 4 times the size.",
        _ACCUMULATE,
    )


def large_buckets() -> Fix:
    return Fix(
        "Keep its buckets large",
        "Each bucket is an exchange of its own.",
        "DistributedDataParallel(model)  # bucket_cap_mb is 25 unless it is set",
    )


def fewer_metrics() -> Fix:
    return Fix(
        "Reduce metrics rarely, and drop barriers",
        "A metric that is only printed need not be exact on every rank in every step; barrier() only waits.",
        "if step % 100 == 0: torch.distributed.all_reduce(metrics)",
    )


def no_detour(*, name: str, value: str) -> Fix:
    return Fix(f"Unset {name}", f"It is set to {value}. {_DETOURS[name]}", f"unset {name}")


def fast_interface(*, name: str) -> Fix:
    return Fix(
        f"Name the fast interface in {name}",
        "It is set to lo, which reaches no other host.",
        f"{name}=eth0  # see: ip link",
    )


def log_less() -> Fix:
    return Fix("Lower NCCL_DEBUG", "It is set to TRACE: every call is logged.", "NCCL_DEBUG=WARN")


def one_process(*, world: int) -> Fix:
    return Fix(
        "Train in one process",
        f"{_all(world)} ranks compute on the cores of this one host: one process with as many threads and the whole "
        "batch does the same work and exchanges nothing.",
        f"python train.py   # batch_size * {world}, OMP_NUM_THREADS not below the number of cores",
    )


def _all(world: int) -> str:
    return "Both" if world == 2 else f"All {world}"


def scatter_and_gather() -> str:
    return "nn.DataParallel's scatter, replicate and gather"


def scatter_and_gather_refuted() -> str:
    return "Run on one GPU without nn.DataParallel: if the samples per second fall in proportion, it did no harm."


def no_data_parallel(*, gpus: float | None) -> Fix:
    count = f"{gpus:g}" if gpus else ""
    return Fix(
        "Use DistributedDataParallel",
        "nn.DataParallel copies the model to every GPU in each step and runs "
        f"{f'all {count} GPUs' if count else 'all GPUs'} from one Python process.",
        f"torchrun --nproc-per-node={count or 'gpu'} train.py\n"
        "# in train.py: init_process_group('nccl'); model = DistributedDataParallel(model.to(local_rank), "
        "device_ids=[local_rank])",
    )


def unwatched_ranks() -> str:
    return "Waiting for ranks that were not watched"


def unwatched_ranks_refuted() -> str:
    return "Watch all ranks: if none of them is late, the exchange itself takes the time."


def watch_all(*, share: float, seen: int, world: int) -> Fix:
    watched = f"{seen} of {world}" if world > seen else f"{seen}"
    return Fix(
        "Watch the other ranks too",
        f"The watched ranks wait in collectives for {percent(share)} of the time, and {watched} ranks were watched: "
        "one that was not may be late, or the exchange itself slow.",
        "perfdoctor attach PID   # on each host, at the same time; of traces: perfdoctor analyze FOLDER",
    )
