"""The host in front of a GPU: launching kernels too slowly, and waiting for them too often."""

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.finding import REPORTED, finding
from perfdoctor.rules.interpreter import debug_fixes, optimizer_fixes
from perfdoctor.rules.lookups import memory_used
from perfdoctor.rules.wording import at, percent, takes, twice_the_batch, unset


def kernel_launch(case: Case) -> Finding | None:
    """The GPU idles between small kernels because the host cannot launch them fast enough."""
    cause = "cpu.kernel_launch"
    if case.share(cause) < REPORTED:
        return None
    fixes = [
        *unset(case, "CUDA_LAUNCH_BLOCKING", "Every launch then waits for its kernel to end."),
        *debug_fixes(case),
        Fix(
            "Compile with CUDA graphs",
            "The GPU runs out of work between small kernels; a graph launches all kernels of a step at once.",
            "model = torch.compile(model, mode='reduce-overhead')  # needs fixed shapes",
        ),
        *optimizer_fixes(case),
        Fix(
            "Use a larger batch",
            "The number of launches per step stays the same while each kernel works longer."
            + (
                f" GPU memory in use: {percent(used)}."
                if (used := memory_used(case)) is not None
                else ""
            ),
            twice_the_batch(case),
        ),
    ]
    return finding(
        case,
        cause,
        takes(case, cause, "Launching small GPU kernels"),
        (
            "gpu_busy", "gpu_sm", "gpu_power", "trainer_running", "trainer_run_delay", "traced_busy",
            "traced_kernels", "traced_kernel_time", "traced_short_kernels", "traced_operators",
            "traced_launch_delay", "traced_optimizer_kernels",
        ),
        fixes,
        "Double the batch size: if the step takes as long as before, launching holds it up; if twice as "
        "long, the GPU's work does.",
    )


def synchronization(case: Case) -> Finding | None:
    """The host drains the GPU's queue and the GPU idles while it refills."""
    cause = "cpu.synchronization"
    if case.share(cause) < REPORTED:
        return None
    line = at(case, cause, "the training step")
    fixes = [
        *unset(case, "CUDA_LAUNCH_BLOCKING", "Every launch then waits for its kernel to end."),
        Fix(
            f"Keep values on the GPU at {line}",
            "Reading a value (.item(), .cpu(), float(loss), print, if tensor:) waits until the GPU has done "
            "all it was given, and the GPU then idles until new work arrives.",
            "total += loss.detach()                      # stays on the GPU\n"
            "if step % 100 == 0: print(total.item())     # one wait in a hundred steps",
        ),
        Fix(
            "Copy without waiting",
            "A copy to the host waits unless it goes to pinned memory.",
            "host = tensor.to('cpu', non_blocking=True); event = torch.cuda.Event(); event.record()  # read "
            "it after the event",
        ),
    ]
    return finding(
        case,
        cause,
        takes(case, cause, "Waiting for the GPU's queue to drain and refill"),
        ("gpu_busy", "gpu_sm", "trainer_running", "traced_waits", "traced_waiting", "traced_busy"),
        fixes,
        "Run once with torch.cuda.set_sync_debug_mode('warn'): if it names no line of the step, nothing "
        "there synchronises.",
    )


LAUNCH_RULES = (kernel_launch, synchronization)
