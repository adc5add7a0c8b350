"""Between ranks: bytes, messages, DataParallel, unobserved ranks, and collectives that share a GPU with kernels."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.english.phrases import amount, percent, then

_LARGER_UPDATE = "an update then has 4 times the samples: adapt the learning rate"
_NO_SYNC = f"""\
last = step % 4 == 3
with contextlib.nullcontext() if last else model.no_sync():  # around the forward pass too, or nothing is saved
    (criterion(model(inputs), targets) / 4).backward()
if last:
    optimizer.step(); optimizer.zero_grad()  # {_LARGER_UPDATE}"""
# By how the ranks share the model, or by whose loop trains it.
_ACCUMULATE = {
    "transformers": f"TrainingArguments(..., gradient_accumulation_steps=4)  # {_LARGER_UPDATE}",
    "lightning": f"Trainer(..., accumulate_grad_batches=4)  # {_LARGER_UPDATE}",
    "": _NO_SYNC,
    "ddp": _NO_SYNC,
    "fsdp": f"{_NO_SYNC}\n# gradients stay whole until the last: memory for one more copy of the parameters",
    "fully_shard": f"""\
last = step % 4 == 3
model.set_requires_gradient_sync(last)  # gradients stay whole until the last: memory for a copy of the parameters
(criterion(model(inputs), targets) / 4).backward()
if last:
    optimizer.step(); optimizer.zero_grad()  # {_LARGER_UPDATE}""",
    "deepspeed": f"""\
config['gradient_accumulation_steps'] = 4  # {_LARGER_UPDATE}
# ZeRO 2 and 3 exchange in each backward pass even so: there raise config['train_micro_batch_size_per_gpu']""",
    "megatron": "--global-batch-size 4096   # 4 times what it is, with --micro-batch-size as it is",
    "no": f"""\
(criterion(model(inputs), targets) / 4).backward()
if step % 4 == 3:
    ...  # exchange the gradients here only, as now, then optimizer.step(); optimizer.zero_grad()
    # {_LARGER_UPDATE}""",
}
_ONCE_BY_CONTEXT = """\
for number, (inputs, targets) in enumerate(parts):  # the batches of one update
    last = number == len(parts) - 1
    with contextlib.nullcontext() if last else model.no_sync():  # around the forward pass too, or nothing is saved
        (criterion(model(inputs), targets) / len(parts)).backward()
optimizer.step(); optimizer.zero_grad()"""
_EXCHANGE_ONCE = {
    "ddp": _ONCE_BY_CONTEXT,
    "fsdp": f"{_ONCE_BY_CONTEXT}\n# gradients stay whole until the last: memory for one more copy of the parameters",
    "fully_shard": """\
for number, (inputs, targets) in enumerate(parts):  # the batches of one update
    last = number == len(parts) - 1
    model.set_requires_gradient_sync(last)  # gradients stay whole until the last: memory for a copy of the parameters
    (criterion(model(inputs), targets) / len(parts)).backward()
optimizer.step(); optimizer.zero_grad()""",
}
_GATHER_ONCE = {
    "fully_shard": "for block in model.layers: fully_shard(block, reshard_after_forward=False)",
    "fsdp": "FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)",
    "deepspeed": "config['zero_optimization']['stage'] = 2",
}
_HALF_SHARDED = {
    "fully_shard": """\
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
for block in model.layers: fully_shard(block, mp_policy=policy)
fully_shard(model, mp_policy=policy)  # reduce_dtype=torch.float32 where sums must be exact""",
    "fsdp": """\
precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
FullyShardedDataParallel(model, mixed_precision=precision)""",
    "deepspeed": "config['bf16'] = {'enabled': True}; config['communication_data_type'] = 'bf16'",
}
_PREFETCH = {
    "fully_shard": """\
for block in model.layers: fully_shard(block)  # a unit per block: of one unit nothing overlaps
fully_shard(model)
for block, following in zip(model.layers, model.layers[1:]):
    block.set_modules_to_forward_prefetch([following])""",
    "fsdp": """\
FullyShardedDataParallel(
    model, auto_wrap_policy=ModuleWrapPolicy({Block}),  # a unit per block: of one unit nothing overlaps
    forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
)""",
    "deepspeed": "config['zero_optimization'].update(overlap_comm=True, contiguous_gradients=True)",
}
_IN_16_BITS = {"megatron": "--grad-reduce-in-bf16   # without --accumulate-allreduce-grads-in-fp32"}
_OVERLAP = {"megatron": "--overlap-grad-reduce --overlap-param-gather   # the second with --use-distributed-optimizer"}
_MOVE = {
    "fully_shard": "block.set_modules_to_backward_prefetch([previous])  # of fully_shard: which parameters come next",
    "fsdp": "FullyShardedDataParallel(model, backward_prefetch=BackwardPrefetch.BACKWARD_POST)  # begins later",
    "deepspeed": "config['zero_optimization']['reduce_bucket_size'] = 100_000_000  # smaller buckets begin earlier",
    "megatron": "--ddp-bucket-size 10000000   # smaller buckets begin earlier",
}


def fewer_channels(*, times: float, longer: float, step: Evidence | None, network: str | None) -> Fix:
    of_step = f", {amount(step)} of each step" if step else ""
    return Fix(
        "Give collectives fewer multiprocessors",
        f"Beside collectives kernels take {times:.2g} times as long as the same ones alone: {percent(longer)} of the "
        f"time{of_step}. Each channel of a collective occupies a multiprocessor, and all of them memory bandwidth."
        f"{then(network)}",
        """\
NCCL_MAX_CTAS=8 torchrun ...  # older NCCL: NCCL_MAX_NCHANNELS=8; newer: NCCL_CTA_POLICY=1, as few as suffice
# in code: options = torch.distributed.ProcessGroupNCCL.Options(); options.config.max_ctas = 8
# torch.distributed.init_process_group('nccl', pg_options=options)""",
    )


def move_overlap(*, way: str) -> Fix:
    return Fix(
        "Move the overlap",
        "A collective that begins earlier, or beside kernels that leave multiprocessors and memory bandwidth free, has "
        "more time and disturbs less.",
        _MOVE.get(way, "DistributedDataParallel(model, bucket_cap_mb=10)  # smaller buckets begin earlier"),
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


def besides_gradients() -> str:
    return "Exchanging other data than gradients"


def besides_gradients_refuted() -> str:
    return "Leave that exchange out for some steps: if they take as long as before, it is not the cause."


def exchange_rarely(*, line: str | None, share: float) -> Fix:
    return Fix(
        f"Do the exchange at {line} more rarely" if line else "Exchange more rarely",
        f"The script calls collectives itself for {percent(share)} of the time, besides those of its training passes. "
        "What the loss needs has to stay; the rest need not be exchanged in each step. All ranks have to call them in "
        "the same steps.",
        "if step % 100 == 0: ...  # around the exchange; what is kept until then goes in one",
    )


def keep_buffers(*, share: float) -> Fix:
    return Fix(
        "Do not send buffers in each step",
        f"In front of each forward pass DistributedDataParallel sends rank 0's buffers to all ranks, which takes "
        f"{percent(share)} of the time. Constant ones (masks, tables of positions) need not be sent, and running "
        "statistics of batches (BatchNorm) need it for evaluations only: ranks that evaluate each have their own then.",
        "model = DistributedDataParallel(model, broadcast_buffers=False)",
    )


def gather_tensors() -> Fix:
    return Fix(
        "Gather tensors instead of objects",
        "Collectives of objects pickle what they are given, exchange the lengths first, and unpickle the objects of "
        "all ranks in each of them. Numbers in one tensor take one exchange.",
        "row = torch.tensor(numbers)  # as many on each rank\n"
        "rows = row.new_empty(torch.distributed.get_world_size() * len(row))\n"
        "torch.distributed.all_gather_into_tensor(rows, row)",
    )


def moving() -> str:
    return "Moving data between ranks"


def moving_refuted() -> str:
    return (
        "Run some steps without the exchange (model.no_sync() around forward and backward pass, or "
        "set_requires_gradient_sync(False)): if they take as long as before, the exchange is not the cause."
    )


def exchange_seldom(
    *, world: int, share: float, received: Evidence | None, within: bool, sharded: bool, way: str
) -> Fix:
    rest = "; parameters are gathered as often as before" if sharded else ""
    medium = "the loopback of this host" if within else "the network"
    moved = f" {amount(received)} goes through {medium}." if received else ""
    return Fix(
        "Exchange gradients every few steps",
        f"{_all(world)} ranks are in the exchange for {percent(share)} of the time.{moved} Accumulated over 4 steps, "
        f"gradients take a quarter of the bytes{rest}.",
        _ACCUMULATE[way],
    )


def exchange_once(*, line: str, when: str, sharded: bool, way: str) -> Fix:
    rest, change = " Parameters are gathered as often as before." if sharded else "", _EXCHANGE_ONCE[way]
    if when:
        change = _ACCUMULATE[way].replace("step % 4 == 3", when).replace(f"  # {_LARGER_UPDATE}", "")
        change = change.replace(".backward()", ".backward()  # as now")
    return Fix(
        "Exchange gradients once per update",
        f"The loop at {line} makes several backward passes for one update, and each of them exchanges gradients. Those "
        f"of all together are enough: only the last pass has to, and what is trained stays the same.{rest}",
        change,
    )


def gather_once(*, way: str, used: float | None) -> Fix:
    room = f" {percent(1 - used)} of the memory is free." if used is not None else " It takes memory for them."
    return Fix(
        "Keep parameters between forward and backward pass",
        "They are gathered for either pass: kept, a third of all bytes need not be sent." + room,
        _GATHER_ONCE[way],
    )


def sharded_half_precision(*, way: str) -> Fix:
    return Fix(
        "Send parameters and gradients in 16 bits",
        "Half the bytes, and matrix products in 16 bits too; the optimizer keeps its parameters in 32 bits.",
        _HALF_SHARDED[way],
    )


def prefetch_parameters(*, way: str) -> Fix:
    return Fix(
        "Gather the next block's parameters while this one computes",
        "Each block waits for its parameters unless they were asked for before.",
        _PREFETCH[way],
    )


def shard_within_host(*, way: str, ranks: int) -> Fix:
    mesh = f"init_device_mesh('cuda', (hosts, {ranks}), mesh_dim_names=('replicate', 'shard'))"
    changes = {
        "fully_shard": f"mesh = {mesh}\nfor block in model.layers: fully_shard(block, mesh=mesh)\n"
        "fully_shard(model, mesh=mesh)",
        "fsdp": "FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.HYBRID_SHARD)",
        "deepspeed": f"config['zero_optimization']['zero_hpz_partition_size'] = {ranks}",
    }
    return Fix(
        "Share the model within each host only",
        f"Parameters then come from the {ranks} ranks of the same host, and only gradients go between hosts. Each host "
        "must have room for the whole model.",
        changes[way],
    )


def half_precision(*, nccl: bool, by_hand: bool, way: str) -> Fix:
    kind, dtype = ("bf16", "bfloat16") if nccl else ("fp16", "float16")
    range_of_it = "" if nccl else "float16 overflows above 65,504: scale the loss down if gradients come near."
    hook = (
        f"from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import {kind}_compress_hook\n"
        f"model.register_comm_hook(state=None, hook={kind}_compress_hook)"
    )
    by_steps = f"small = gradient.to(torch.{dtype})\ntorch.distributed.all_reduce(small)\ngradient.copy_(small)"
    return Fix(
        "Send gradients in 16 bits",
        f"Half the bytes for the same gradients.{then(range_of_it)}",
        by_steps if by_hand else _IN_16_BITS.get(way, hook),
    )


def use_ddp() -> Fix:
    return Fix(
        "Leave the gradients to DistributedDataParallel",
        "It sends gradients during the backward pass; here no frame of it was seen.",
        "model = DistributedDataParallel(model)  # instead of exchanging by hand; on GPUs device_ids=[local_rank] too",
    )


def overlap(*, way: str) -> Fix:
    return Fix(
        "Let the exchange overlap with the backward pass",
        "A bucket is sent as soon as its gradients are there; the search for unused parameters and very large buckets "
        "delay that.",
        _OVERLAP.get(
            way,
            "DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)\n"
            "# static_graph: if all steps use the same parameters; else find_unused_parameters=False",
        ),
    )


def use_nccl() -> Fix:
    return Fix(
        "Make sure that NCCL is used",
        "It moves data between GPUs directly; other backends go through host memory.",
        "torch.distributed.init_process_group('nccl')  # torch.distributed.get_backend() says which is in use",
    )


def small_messages() -> str:
    return "Exchanging many small messages between ranks"


def small_messages_refuted() -> str:
    return (
        "Send ten times the bytes in each exchange: if a step takes nearly as long as before, the number of exchanges "
        "costs; if it takes ten times as long, the bytes do."
    )


def send_as_one(*, share: float, size: Evidence | None) -> Fix:
    small = f" A packet has {amount(size)} on average." if size else ""
    return Fix(
        "Send many small tensors as one",
        f"Every collective costs a round of wake-ups, however few bytes it moves: {percent(share)} of the time.{small}",
        "flat = torch.cat([tensor.flatten() for tensor in tensors])\n"
        "torch.distributed.all_reduce(flat)\n"
        "for old, new in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):\n"
        "    old.copy_(new.view_as(old))",
    )


def no_sync_batch_norm() -> Fix:
    return Fix(
        "Leave SyncBatchNorm out",
        "Each of its layers exchanges its statistics, in the forward and in the backward pass.",
        "model = model  # without torch.nn.SyncBatchNorm.convert_sync_batchnorm, if a rank has 16 samples or more;\n"
        "torch.nn.GroupNorm(32, channels)  # needs no statistics of other samples",
    )


def use_buckets() -> Fix:
    return Fix(
        "Leave the gradients to DistributedDataParallel",
        "It gathers gradients into buckets of 25 MB and sends them during the backward pass.",
        "model = DistributedDataParallel(model, bucket_cap_mb=25)",
    )


def fewer_rounds(*, way: str) -> Fix:
    return Fix(
        "Exchange gradients every few steps",
        "Gradients are exchanged in each backward pass, and the pass waits for the round of messages that it takes, "
        "however small the model. Accumulating over 4 steps needs a quarter of the rounds, and so does a batch of 4 "
        "times the size.",
        _ACCUMULATE[way],
    )


def large_buckets(*, way: str) -> Fix:
    changes = {
        "ddp": "DistributedDataParallel(model, bucket_cap_mb=100)  # 25 unless it is set",
        "fully_shard": """\
for number in range(0, len(model.layers), 2):  # two blocks in each unit
    fully_shard(list(model.layers[number : number + 2]))
fully_shard(model)""",
    }
    return Fix("Exchange more at a time", "Each bucket or unit is an exchange of its own.", changes[way])


def fewer_metrics() -> Fix:
    return Fix(
        "Reduce metrics rarely, and drop barriers",
        "A metric that is only printed need not be exact on every rank in every step; barrier() only waits.",
        "if step % 100 == 0: torch.distributed.all_reduce(metrics)",
    )


def one_process(*, world: int, own_ranks: bool, threads_set: bool) -> Fix:
    by = "torch.set_num_threads" if threads_set else "OMP_NUM_THREADS"
    return Fix(
        "Train in one process",
        f"{_all(world)} ranks compute on the cores of this one host: one process with {world} times the batch and as "
        f"many threads as there are cores (by {by}) does the same work and exchanges nothing.",
        f"torch.multiprocessing.spawn(train, nprocs=1)  # or however the script starts its {world} ranks"
        if own_ranks
        else "torchrun --nproc-per-node=1 train.py",
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
        "torch.distributed.init_process_group('nccl'); local_rank = int(os.environ['LOCAL_RANK'])\n"
        "torch.cuda.set_device(local_rank)\n"
        "model = DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])\n"
        "loader = DataLoader(..., sampler=DistributedSampler(dataset))  # each rank its part; batch_size is per rank\n"
        f"# torchrun --nproc-per-node={count or 'gpu'} train.py; a model too large for one GPU: fully_shard(model)",
    )
