"""What a busy GPU is busy with: arithmetic, memory traffic, too little work, or the wrong precision."""

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.finding import REPORTED, bounded, finding
from perfdoctor.rules.lookups import memory_used, setting, variable
from perfdoctor.rules.recomputing import keep_activations
from perfdoctor.rules.sharing import fewer_channels
from perfdoctor.rules.wording import amount, percent, takes, twice_the_batch

# bfloat16 in tensor cores and TF32 came with compute capability 8.0 (CUDA programming guide).
_AMPERE = 8.0
# How many times as fast matrix products are in TF32, by data sheets: 8 on the A100, 7 on the H100, 2 on A10 and L4. So
# are they in float16 on V100 and T4: 8.
_TIMES_AS_FAST = 8.0
_TIMES_AS_FAST_OF = {8.6: 2.0, 8.9: 2.0}
# GPUs of one model differ by a few percent.
_SLOWER = 1.1
# With more memory than this in use, merging kernels comes before a larger batch.
_ROOM = 0.5


def compute(case: Case) -> Finding | None:
    """The model's own arithmetic on the GPU: healthy."""
    cause = "gpu.compute"
    if case.share(cause) < REPORTED:
        return None
    return finding(
        case,
        cause,
        takes(case, cause, "The model's own arithmetic on the GPU"),
        (
            "gpu_busy", "traced_same_kernels", "traced_busy", "traced_beside", "traced_lengthened",
            "traced_lengthened_step", "traced_behind", "traced_bus_alone", "traced_bus_behind", "traced_recomputed",
            "traced_memory", "gpu_memory_share", "gpu_sm", "gpu_tensor", "traced_tensor_cores", "traced_matrix_fp8",
            "traced_matrix_bf16", "traced_matrix_fp16", "traced_matrix_tf32", "traced_matrix_fp32",
            "traced_matrix_fp64", "roofline", "roofline_1", "roofline_2", "roofline_3", "gpu_dram", "gpu_power",
            "gpu_power_limit",
        ),
        [*_unequal(case), *fewer_channels(case), *keep_activations(case)],
        "Halve the batch size: if a step then takes as long as before, the time does not go into arithmetic.",
    )


def _unequal(case: Case) -> list[Fix]:
    """What to do about a rank that computes longer than the others, where traces tell why."""
    times = case.number("traced_same_kernels")
    if times is None:
        return []
    if times < _SLOWER:
        why = "The same kernels take as long there as on other ranks: it has more or larger ones."
        return [Fix("Give all ranks the same work", why, "Bucket samples by length, or fill batches by tokens.")]
    return [
        Fix(
            "Check the GPU of the late rank",
            f"The same kernels take {times:.2g} times as long there as on other ranks.",
            "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,ECC   # on its host and on another",
        )
    ]


def memory_bandwidth(case: Case) -> Finding | None:
    """Busy, but on memory traffic."""
    cause = "gpu.memory_bandwidth"
    if case.share(cause) < REPORTED:
        return None
    fixes = [
        Fix(
            "Fuse element-wise operations",
            f"{_memory_and_tensor_cores(case)}Each element-wise operation reads and writes its whole tensor.",
            "model = torch.compile(model)",
        ),
        Fix(
            "Halve the bytes",
            "Activations in bfloat16 need half the traffic of float32.",
            "with torch.autocast('cuda', dtype=torch.bfloat16): loss = model(batch)",
        ),
        *_less_traffic(case),
    ]
    return finding(
        case,
        cause,
        takes(case, cause, "Memory traffic on the GPU"),
        (
            "gpu_dram", "gpu_tensor", "gpu_sm", "gpu_busy", "traced_busy", "traced_kernel_time", "traced_softmax",
            "traced_fused_attention", "traced_layout", "traced_beside", "traced_lengthened", "traced_recomputed",
            "roofline",
        ),
        fixes,
        "Compile the model's element-wise part: if the step takes as long as before, memory traffic is not "
        "what it waits for.",
    )


def _less_traffic(case: Case) -> list[Fix]:
    """What helps attention and convolutions: where kernels were traced, only what they ask for."""
    traced = case.number("traced_kernel_time") is not None
    softmax, layout = case.number("traced_softmax"), case.number("traced_layout")
    fixes = []
    if softmax or not traced:
        part = f" Softmax kernels of their own take {percent(softmax)} of the kernels' time." if softmax else ""
        fixes.append(
            Fix(
                "Use fused attention",
                f"Attention that writes its score matrix moves far more bytes than it needs.{part}",
                "torch.nn.functional.scaled_dot_product_attention(q, k, v)",
            )
        )
    if layout or not traced:
        part = f": {percent(layout)} of the kernels' time" if layout else ""
        fixes.append(
            Fix(
                "Keep convolutions in channels last",
                f"They convert layouts otherwise{part}.",
                "model = model.to(memory_format=torch.channels_last)",
            )
        )
    return fixes


def _memory_and_tensor_cores(case: Case) -> str:
    """What the hardware's counters say, where they were read."""
    memory, tensor = amount(case, "gpu_dram"), amount(case, "gpu_tensor")
    return f"Memory traffic fills {memory}, tensor cores {tensor}. " if memory and tensor else ""


def low_occupancy(case: Case) -> Finding | None:
    """Busy with too little work per kernel."""
    cause = "gpu.low_occupancy"
    if case.share(cause) < REPORTED:
        return None
    used = memory_used(case)
    room = f" {percent(1 - used)} of its memory are free." if used is not None else ""
    larger = Fix(
        "Use a larger batch",
        f"Kernels run on a part of the GPU only{_multiprocessors(case)}.{room}",
        twice_the_batch(case),
    )
    fused = Fix(
        "Merge small kernels",
        "Larger kernels have work for more multiprocessors.",
        "model = torch.compile(model)",
    )
    fixes = [larger, fused] if used is None or used < _ROOM else [fused, larger]
    found = finding(
        case,
        cause,
        takes(case, cause, "Kernels with too little work for the GPU"),
        (
            "gpu_sm", "gpu_occupancy", "gpu_busy", "gpu_power", "gpu_memory_share", "traced_kernel_time",
            "traced_short_kernels", "roofline",
        ),
        fixes,
        "Double the batch size: if the samples per second do not rise, the kernels are not too small.",
    )
    return bounded(found, 1 - found.share / 2)  # twice the work in the same time


def _multiprocessors(case: Case) -> str:
    active = amount(case, "gpu_sm")
    return f" ({active} of the multiprocessors' time)" if active else ""


_ALLOW_TF32_AGAIN = Fix(
    "Unset NVIDIA_TF32_OVERRIDE",
    "It is set to 0 and forbids TF32 everywhere.",
    "unset NVIDIA_TF32_OVERRIDE",
)


_TF32 = Fix(
    "Allow TF32",
    "One line; weights and activations stay in float32.",
    "torch.set_float32_matmul_precision('high')",
)


def no_tensor_cores(case: Case) -> Finding | None:
    """Full precision where tensor cores would serve."""
    cause = "gpu.no_tensor_cores"
    if case.share(cause) < REPORTED:
        return None
    capability = setting(case, "compute_capability")
    fixes = []
    if variable(case, "NVIDIA_TF32_OVERRIDE") == "0":
        fixes.append(_ALLOW_TF32_AGAIN)
    why = f"Tensor cores were busy for {amount(case, 'gpu_tensor') or 'next to none of the time'}"
    if capability is None or capability >= _AMPERE:
        fixes += [
            Fix(
                "Train in mixed precision",
                f"{why}; matrix products in bfloat16 run on them.",
                "with torch.autocast('cuda', dtype=torch.bfloat16): loss = model(batch)",
            ),
            _TF32,
        ]
    else:
        fixes.append(
            Fix(
                "Train in mixed precision",
                f"{why}; this GPU (compute capability {capability:g}) has them for float16.",
                "scaler = torch.amp.GradScaler()\n"
                "with torch.autocast('cuda', dtype=torch.float16): loss = model(batch)\n"
                "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
            )
        )
    found = finding(
        case,
        cause,
        takes(case, cause, "Arithmetic in full precision"),
        (
            "gpu_tensor", "traced_tensor_cores", "traced_matrix_fp8", "traced_matrix_bf16", "traced_matrix_fp16",
            "traced_matrix_tf32", "traced_matrix_fp32", "traced_matrix_fp64", "roofline", "roofline_1", "roofline_2",
            "roofline_3", "gpu_fp32", "gpu_sm", "gpu_dram", "traced_busy",
        ),
        fixes,
        "Run some steps under torch.autocast: if they take as long as before, matrix products are not where "
        "the time goes.",
    )
    return bounded(found, 1 - found.share + found.share / _TIMES_AS_FAST_OF.get(capability or 0.0, _TIMES_AS_FAST))


GPU_RULES = (compute, memory_bandwidth, low_occupancy, no_tensor_cores)
