"""What keeps a GPU from working: copies, memory, clocks, and other processes."""

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.finding import REPORTED, finding
from perfdoctor.rules.lookups import switched_on, variable
from perfdoctor.rules.wording import amount, percent, takes, unset

_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # the second is the older name, still read


def host_transfer(case: Case) -> Finding | None:
    """Exposed copies between host and device."""
    cause = "gpu.host_transfer"
    if case.share(cause) < REPORTED:
        return None
    pinned = case.settings.get("pin_thread") == "yes" or case.number("traced_pageable") == 0
    without_waiting = Fix(
        "Copy without waiting",
        "The batches are pinned, so copies can overlap with computing."
        if pinned
        else "Copies from ordinary memory go through a small pinned buffer, and the host waits for each.",
        "batch = batch.to(device, non_blocking=True)"
        if pinned
        else "DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
    )
    fixes = [
        *unset(case, "CUDA_LAUNCH_BLOCKING", "No copy can then overlap with anything."),
        without_waiting,
        Fix(
            "Send fewer bytes",
            f"{amount(case, 'gpu_pcie_received') or 'All batches'} go over PCIe.",
            "Send images as uint8 and convert on the GPU: batch.to(device, "
            "non_blocking=True).float().div_(255)",
        ),
        Fix(
            "Make tensors where they are used",
            "A tensor made on the host has to be copied.",
            "torch.zeros(n, device=device)",
        ),
    ]
    return finding(
        case,
        cause,
        takes(case, cause, "Copying between host and GPU"),
        (
            "gpu_pcie_received", "gpu_pcie_sent", "gpu_busy", "traced_copies", "traced_blocked", "traced_pageable",
            "traced_busy", "exposed_rest", "overlap",
        ),
        fixes,
        "Reuse one batch that is on the GPU already: if the step takes as long as before, copies are not "
        "the cause.",
    )


_KEEP_THE_CACHE = Fix(
    "Remove torch.cuda.empty_cache() from the step",
    "It gives memory back that the next step asks for again.",
    "# delete the call",
)


def memory_pressure(case: Case) -> Finding | None:
    """Allocator retries, cudaMalloc and cudaFree churn."""
    cause = "gpu.memory_pressure"
    if case.share(cause) < REPORTED:
        return None
    allocator = " ".join(variable(case, name) or "" for name in _ALLOCATOR)
    used = case.number("gpu_memory_share")
    full = "The GPU's memory is short" if used is None else f"{percent(used)} of the GPU's memory is in use"
    fixes = unset(
        case, "PYTORCH_NO_CUDA_MEMORY_CACHING", "Every tensor then costs a cudaMalloc and a cudaFree."
    )
    if "expandable_segments:true" not in allocator.lower().replace(" ", ""):
        fixes.append(
            Fix(
                "Let the allocator grow its segments",
                f"{full}, and freed pieces that do not fit are given back and asked for again.",
                "PYTORCH_ALLOC_CONF=expandable_segments:True python train.py   # older torch: "
                "PYTORCH_CUDA_ALLOC_CONF",
            )
        )
    fixes += [
        _KEEP_THE_CACHE,
        Fix(
            "Use less memory",
            f"{full}.",
            "Halve batch_size and accumulate two steps, or torch.utils.checkpoint.checkpoint(block, x, "
            "use_reentrant=False)",
        ),
    ]
    return finding(
        case,
        cause,
        takes(case, cause, "Running out of GPU memory"),
        ("gpu_memory", "gpu_memory_share", "gpu_busy", "traced_allocations", "traced_busy"),
        fixes,
        "Read torch.cuda.memory_stats()['num_alloc_retries'] twice: if it stands still, the allocator does "
        "not run short.",
    )


_UNLOCK_CLOCKS = Fix(
    "Check for locked clocks",
    "Application clocks may have been set for another job.",
    "nvidia-smi -q -d CLOCK; nvidia-smi -rgc",
)


def throttled(case: Case) -> Finding | None:
    """Power, heat or clock limits."""
    cause = "gpu.throttled"
    if case.share(cause) < REPORTED:
        return None
    reasons = {what: case.number(f"gpu_limited_by_{what}") or 0.0 for what in ("heat", "hardware", "power")}
    reason = max(reasons, key=lambda what: reasons[what])
    deficit = case.number("gpu_clock_deficit")
    slow = f"The clock is {percent(deficit)} below its highest. " if deficit is not None else ""
    remedy = {
        "heat": Fix(
            "Cool the GPU",
            f"{slow}Heat holds it down ({amount(case, 'gpu_temperature') or 'temperature unknown'}).",
            "nvidia-smi -q -d TEMPERATURE,PERFORMANCE   # then fans, filters, placement in the rack",
        ),
        "power": Fix(
            "Raise the power limit, if it was lowered",
            f"{slow}It draws {amount(case, 'gpu_power') or 'what it may'} of "
            f"{amount(case, 'gpu_power_limit') or 'its limit'}.",
            "nvidia-smi -q -d POWER; nvidia-smi -pl WATTS   # as root",
        ),
        "hardware": Fix(
            "Check the GPU's power supply",
            f"{slow}The hardware itself slows it down (power brake or overheating).",
            "nvidia-smi -q -d PERFORMANCE",
        ),
    }
    locked = _UNLOCK_CLOCKS
    fixes = [remedy[reason], locked] if reasons[reason] > 0 else [locked]
    return finding(
        case,
        cause,
        takes(case, cause, "Lowered GPU clocks"),
        (
            "gpu_clock", "gpu_clock_max", "gpu_clock_deficit", "gpu_limited_by_power", "gpu_limited_by_heat",
            "gpu_limited_by_hardware", "gpu_power", "gpu_power_limit", "gpu_temperature",
        ),
        fixes,
        "Time one large matrix product on an idle twin of this GPU: if it is as slow there, the clocks are "
        "not the cause.",
    )


def contention(case: Case) -> Finding | None:
    """Another process on the GPU."""
    cause = "gpu.contention"
    if case.share(cause) < REPORTED:
        return None
    others = amount(case, "gpu_foreign_processes") or "other processes"
    part = case.number("gpu_foreign_sm")
    use = f" They use it for {percent(part)} of the time." if part is not None else ""
    mps = switched_on(case, "CUDA_MPS_PIPE_DIRECTORY")
    fixes = [
        Fix(
            "Use a GPU of your own",
            f"{others} share the GPU, and take turns with this job.{use}",
            "nvidia-smi   # see who is there, then: CUDA_VISIBLE_DEVICES=N python train.py",
        )
    ]
    if not mps:
        fixes.append(
            Fix(
                "If they must share, let them run at the same time",
                "Without MPS processes take turns.",
                "nvidia-cuda-mps-control -d",
            )
        )
    return finding(
        case,
        cause,
        takes(case, cause, "Sharing the GPU with other processes"),
        ("gpu_foreign_processes", "gpu_foreign_sm", "gpu_busy", "gpu_memory_share"),
        fixes,
        "Stop the other processes for a minute: if the pace stays the same, they are not the cause.",
    )


DEVICE_RULES = (host_transfer, memory_pressure, throttled, contention)
