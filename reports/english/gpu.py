"""What a busy GPU is busy with, and what slows it."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.english.phrases import amount, blocks_run_again, fewer_checkpoints, percent, twice_the_batch

# By whose loop trains the model.
_BFLOAT16 = {
    "transformers": "TrainingArguments(..., bf16=True)",
    "lightning": "Trainer(..., precision='bf16-mixed')",
    "": """\
with torch.autocast('cuda', dtype=torch.bfloat16):
    loss = criterion(model(inputs), targets)
loss.backward()  # outside of autocast""",
}
_FLOAT16 = {
    "transformers": "TrainingArguments(..., fp16=True)",
    "lightning": "Trainer(..., precision='16-mixed')",
    "": """\
scaler = torch.amp.GradScaler()  # once
with torch.autocast('cuda', dtype=torch.float16):
    loss = criterion(model(inputs), targets)
scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()""",
}

# Where nothing is trained.
_FORWARD = """\
with torch.inference_mode(), torch.autocast('cuda', dtype=torch.{dtype}):
    outputs = model(inputs)"""

# By how the ranks share the model.
_MICRO_BATCHES = {
    "megatron": "--micro-batch-size 1   # or half of what it is, with --global-batch-size as it is\n"
    "--num-layers-per-virtual-pipeline-stage 1   # several smaller stages on each rank",
    "deepspeed": "config['train_micro_batch_size_per_gpu'] //= 2; config['gradient_accumulation_steps'] *= 2",
    "": "n_microbatches = 2 * n_microbatches  # of the schedule of torch.distributed.pipelining\n"
    "# ScheduleInterleaved1F1B: several smaller stages on each rank",
}


def computing() -> str:
    return "The model's own arithmetic on the GPU"


def computing_refuted() -> str:
    return "Halve the batch size: if a step then takes as long as before, the time does not go into arithmetic."


def same_work() -> Fix:
    return Fix(
        "Give all ranks the same work",
        "The same kernels take as long there as on other ranks: it has more or larger ones.",
        "Bucket samples by length, or fill batches by tokens.",
    )


def check_late_gpu(*, times: float) -> Fix:
    return Fix(
        "Check the GPU of the late rank",
        f"The same kernels take {times:.2g} times as long there as on other ranks.",
        "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,ECC   # on its host and on another",
    )


def compare_kernels() -> Fix:
    return Fix(
        "Tell slow hardware from more work",
        "If the same kernels on the same shapes take longer there, it is the hardware; if there are more or larger "
        "ones, it is the work.",
        "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,ECC   # on the slow rank's host and on another",
    )


def leave_rank_out(*, rank: int | None) -> Fix:
    return Fix(
        f"Run without the GPU of rank {rank}",
        "One slow GPU sets the pace of all.",
        "Start the job again with that host left out, and see whether the slowness stays away.",
    )


def move_layers(*, stage: int | None) -> Fix:
    return Fix(
        f"Move layers away from pipeline stage {stage}",
        "All stages wait for the one with the most work. The last one also computes the head and the loss.",
        "Megatron: --decoder-last-pipeline-num-layers N with fewer layers; torch.distributed.pipelining: split the "
        "model elsewhere.",
    )


def more_micro_batches(*, waiting: float, way: str) -> Fix:
    return Fix(
        "Split the batch into more micro-batches",
        f"Stages of a pipeline wait for each other for {percent(waiting)} of the time: while it fills and drains in "
        "each step, and where one of them has more work. With twice as many micro-batches of half the size the former "
        "takes half as long.",
        _MICRO_BATCHES.get(way, _MICRO_BATCHES[""]),
    )


def same_cost() -> Fix:
    return Fix(
        "Give all ranks batches of the same cost",
        "Samples of different lengths make another rank the slowest in each step, and all wait for it.",
        "Bucket samples by length, pack them, or fill batches by tokens instead of by samples.",
    )


def checkpoint_less(*, again: float, used: float | None, full: bool, loop: str) -> Fix:
    return Fix(
        "Checkpoint fewer blocks, or none",
        blocks_run_again(again, used, "the memory", full=full),
        f"{fewer_checkpoints(loop)}\nprint(torch.cuda.max_memory_reserved() / torch.cuda.mem_get_info()[1])",
    )


def checkpoint_selectively(*, again: float) -> Fix:
    return Fix(
        "Checkpoint selectively",
        "Matrix products and attention take most of a forward pass; kept, they need not be computed again, and what is "
        f"cheap to compute still needs no memory. The gain is part of the {percent(again)}.",
        """\
from functools import partial
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
kept = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default,
        torch.ops.aten._scaled_dot_product_flash_attention.default}
def policy(context, operator, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if operator in kept else CheckpointPolicy.PREFER_RECOMPUTE
checkpoint(block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, policy))""",
    )


def moving_memory() -> str:
    return "Memory traffic on the GPU"


def moving_memory_refuted() -> str:
    return (
        "Compile the model's element-wise part: if the step takes as long as before, memory traffic is not what it "
        "waits for."
    )


def fuse(*, memory: Evidence | None, tensor: Evidence | None) -> Fix:
    counters = f"Memory traffic fills {amount(memory)}, tensor cores {amount(tensor)}. " if memory and tensor else ""
    return Fix(
        "Fuse element-wise operations",
        f"{counters}Each element-wise operation reads and writes its whole tensor.",
        "model.compile()  # the first steps then take a minute or more",
    )


def halve_bytes(*, bfloat16: bool, loop: str, trains: bool) -> Fix:
    kind = "bfloat16" if bfloat16 else "float16"
    why = f"Activations in {kind} need half the traffic of float32."
    return Fix("Halve the bytes", why, _in_16_bits(kind, loop=loop, trains=trains))


def fused_attention(*, softmax: float | None) -> Fix:
    part = f" Softmax kernels of their own take {percent(softmax)} of the kernels' time." if softmax else ""
    return Fix(
        "Use fused attention",
        f"Attention that writes its score matrix moves far more bytes than it needs.{part}",
        "torch.nn.functional.scaled_dot_product_attention(q, k, v)",
    )


def channels_last(*, layout: float | None) -> Fix:
    part = f": {percent(layout)} of the kernels' time" if layout else ""
    return Fix(
        "Keep convolutions in channels last",
        f"Otherwise they convert layouts{part}. With batches of one size, cuDNN can search for its fastest algorithm "
        "once.",
        "model = model.to(memory_format=torch.channels_last)\n"
        "inputs = inputs.to(memory_format=torch.channels_last)\n"
        "torch.backends.cudnn.benchmark = True  # not where sizes change: it looks anew for each",
    )


def small_kernels() -> str:
    return "Kernels with too little work for the GPU"


def small_kernels_refuted() -> str:
    return "Double the batch size: if the samples per second do not rise, the kernels are not too small."


def larger_batch(*, active: Evidence | None, used: float | None, loader: bool) -> Fix:
    part = f" ({amount(active)} of the multiprocessors' time)" if active else ""
    room = f" {percent(1 - used)} of its memory is free." if used is not None else ""
    return Fix("Use a larger batch", f"Kernels run on a part of the GPU only{part}.{room}", twice_the_batch(loader))


def merge_kernels() -> Fix:
    return Fix(
        "Merge small kernels",
        "Larger kernels have work for more multiprocessors.",
        "model.compile()  # the first steps then take a minute or more",
    )


def full_precision() -> str:
    return "Arithmetic in full precision"


def full_precision_refuted() -> str:
    return (
        "Run some steps under torch.autocast: if they take as long as before, matrix products are not where the time "
        "goes."
    )


def allow_tf32_again(*, name: str) -> Fix:
    return Fix(f"Unset {name}", "It is set to 0 and forbids TF32 everywhere.", f"unset {name}")


def bfloat16(*, busy: Evidence | None, loop: str, trains: bool) -> Fix:
    return Fix(
        f"{'Train' if trains else 'Compute'} in mixed precision",
        f"{_tensor_cores(busy)}; matrix products in bfloat16 run on them.",
        _in_16_bits("bfloat16", loop=loop, trains=trains),
    )


def float16(*, busy: Evidence | None, capability: float, loop: str, trains: bool) -> Fix:
    return Fix(
        f"{'Train' if trains else 'Compute'} in mixed precision",
        f"{_tensor_cores(busy)}; this GPU (compute capability {capability:g}) has them for float16.",
        _in_16_bits("float16", loop=loop, trains=trains),
    )


def tf32() -> Fix:
    return Fix(
        "Allow TF32",
        "One line; weights and activations stay in float32.",
        "torch.set_float32_matmul_precision('high')\n"
        "# or, from PyTorch 2.9 on, torch.backends.fp32_precision = 'tf32': one of the two, PyTorch refuses both",
    )


def try_mixed_precision(*, bfloat16: bool, loop: str) -> Fix:
    return Fix(
        "If it trains in float32, train in mixed precision",
        "This GPU's counters do not say whether its tensor cores work; matrix products in 16 bits run on them, several "
        "times as fast.",
        (_BFLOAT16 if bfloat16 else _FLOAT16)[loop],
    )


def _in_16_bits(dtype: str, *, loop: str, trains: bool) -> str:
    if not trains:
        return _FORWARD.format(dtype=dtype)
    return (_BFLOAT16 if dtype == "bfloat16" else _FLOAT16)[loop]


def _tensor_cores(busy: Evidence | None) -> str:
    return f"Tensor cores were busy for {amount(busy) if busy else 'next to none of the time'}"


def low_clocks() -> str:
    return "Running at lowered GPU clocks"


def low_clocks_refuted() -> str:
    return (
        "Time one large matrix product on an idle twin of this GPU: if it is as slow there, the clocks are not the "
        "cause."
    )


def cool(*, slow: float | None, temperature: Evidence | None) -> Fix:
    return Fix(
        "Cool the GPU",
        f"{_clock(slow)}Heat holds it down ({amount(temperature) if temperature else 'temperature unknown'}).",
        "nvidia-smi -q -d TEMPERATURE,PERFORMANCE   # then fans, filters, placement in the rack",
    )


def power_limit(*, slow: float | None, power: Evidence | None, limit: Evidence | None) -> Fix:
    draws = f"{amount(power) if power else 'what it may'} of {amount(limit) if limit else 'its limit'}"
    return Fix(
        "Raise the power limit, if it was lowered",
        f"{_clock(slow)}It draws {draws}.",
        "nvidia-smi -q -d POWER; nvidia-smi -pl WATTS   # as root",
    )


def power_supply(*, slow: float | None) -> Fix:
    return Fix(
        "Check the GPU's power supply",
        f"{_clock(slow)}The hardware itself slows it down (power brake or overheating).",
        "nvidia-smi -q -d PERFORMANCE",
    )


def unlock_clocks() -> Fix:
    return Fix(
        "Check for locked clocks",
        "Clocks may have been locked, or application clocks set, for another job.",
        "nvidia-smi -q -d CLOCK\n"
        "nvidia-smi -rgc   # as root: unlocks clocks (-lgc)\n"
        "nvidia-smi -rac   # resets application clocks (-ac)",
    )


def _clock(slow: float | None) -> str:
    return f"The clock is {percent(slow)} below its highest. " if slow is not None else ""


def sharing() -> str:
    return "Sharing the GPU with other processes"


def sharing_refuted() -> str:
    return "Stop the other processes for a minute: if the pace stays the same, they are not the cause."


def own_gpu(*, others: Evidence | None, use: float | None) -> Fix:
    part = f" Others use it for {percent(use)} of the time." if use is not None else ""
    return Fix(
        "Use a GPU of your own",
        f"This job takes turns on the GPU with {amount(others) if others else 'other processes'}.{part}",
        "nvidia-smi   # see who is there, then: CUDA_VISIBLE_DEVICES=N python train.py",
    )


def start_mps() -> Fix:
    return Fix(
        "If they must share, let them run at the same time",
        "Without MPS, processes take turns on a GPU.",
        "nvidia-cuda-mps-control -d",
    )
