"""What leaves a GPU idle: slow launches, waits for its queue to drain, copies, full memory, and the job's start."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.english.phrases import amount, percent, twice_the_batch

_CACHES = 'export TORCHINDUCTOR_CACHE_DIR="$HOME/.cache/inductor" TRITON_CACHE_DIR="$HOME/.cache/triton"\n'


def launching() -> str:
    return "Launching small GPU kernels"


def launching_refuted() -> str:
    return (
        "Double the batch size: if the step takes as long as before, launching holds it up; if twice as long, the "
        "GPU's work does."
    )


def every_launch_waits() -> str:
    return "Every launch then waits for its kernel to end."


def cuda_graphs() -> Fix:
    return Fix(
        "Compile with CUDA graphs",
        "The GPU runs out of work between small kernels; a graph launches all kernels of a step at once.",
        "model.compile(mode='reduce-overhead')  # for batches of one size; the first steps then take a minute or more\n"
        "# a batch of another size is captured anew: DataLoader(..., drop_last=True)",
    )


def between_graphs(*, line: str | None) -> Fix:
    at = f", above all at {line}" if line else ""
    return Fix(
        "Launch less between the CUDA graphs",
        "Most of the GPU's work is launched as graphs already. The GPU waits while the host prepares the next one: it "
        f"copies its inputs, makes what they are indexed with, and launches the graph{at}.",
        "static_inputs.copy_(new_inputs, non_blocking=True)  # views of one tensor: one call; some fit into the graph\n"
        "# prepare the next graph's inputs while this one runs; read its results after the next launch",
    )


def larger_batch(*, used: float | None, loader: bool) -> Fix:
    memory = f" GPU memory in use: {percent(used)}." if used is not None else ""
    return Fix(
        "Use a larger batch",
        f"The number of launches per step stays the same while each kernel works longer.{memory}",
        twice_the_batch(loader),
    )


def draining() -> str:
    return "Waiting for the GPU's queue to drain and refill"


def draining_refuted() -> str:
    return (
        "Run once with torch.cuda.set_sync_debug_mode('warn'): if it names no line of the step, nothing there "
        "synchronises."
    )


def keep_values(*, line: str | None) -> Fix:
    return Fix(
        f"Keep values on the GPU at {line or 'the training step'}",
        "Reading a value (.item(), .cpu(), float(loss), print, if tensor:) waits until the GPU has done all it was "
        "given, and the GPU then idles until new work arrives.",
        "total += loss.detach()  # stays on the GPU\n"
        "if step % 100 == 0: print(total.item())  # one wait in a hundred steps\n"
        "values = torch.where(mask, values, 0)  # values[mask] waits, as their number must be known",
    )


def copy_to_pinned() -> Fix:
    return Fix(
        "Copy without waiting",
        "A copy to the host waits unless it goes to pinned memory.",
        "host = tensor.to('cpu', non_blocking=True); event = torch.cuda.Event(); event.record()  # read it after the "
        "event",
    )


def copying() -> str:
    return "Copying between host and GPU"


def copying_refuted() -> str:
    return "Reuse one batch that is on the GPU already: if the step takes as long as before, copies are not the cause."


def no_copy_overlaps() -> str:
    return "No copy can then overlap with anything."


def overlap_copies() -> Fix:
    return Fix(
        "Copy without waiting",
        "The batches are pinned, so copies can overlap with computing.",
        "batch = batch.to(device, non_blocking=True)",
    )


def pin_batches(*, loader: bool) -> Fix:
    with_loader = "DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)"
    by_hand = (
        "batch = batch.pin_memory().to(device, non_blocking=True)\n"
        "# better still: make the batch in pinned memory, torch.empty(..., pin_memory=True)"
    )
    return Fix(
        "Copy without waiting",
        "Copies from ordinary memory go through a small pinned buffer, and the host waits for each.",
        with_loader if loader else by_hand,
    )


def fewer_bytes(*, received: Evidence | None) -> Fix:
    return Fix(
        "Send fewer bytes",
        f"{amount(received) if received else 'All batches'} go over PCIe.",
        "Send images as uint8 and convert on the GPU: batch.to(device, non_blocking=True).float().div_(255)",
    )


def make_on_gpu() -> Fix:
    return Fix(
        "Make tensors where they are used",
        "A tensor made on the host has to be copied.",
        "torch.zeros(n, device=device)",
    )


def out_of_memory() -> str:
    return "Making room in the GPU's memory"


def out_of_memory_refuted() -> str:
    return (
        "Read torch.cuda.memory_stats()['num_alloc_retries'] twice: if it stands still, the allocator does not run "
        "short."
    )


def every_tensor_allocates() -> str:
    return "Every tensor then costs a cudaMalloc and a cudaFree."


def growing_segments(*, used: float | None) -> Fix:
    return Fix(
        "Let the allocator grow its segments",
        f"{_how_full(used)}, and freed pieces that do not fit are given back and asked for again.",
        "PYTORCH_ALLOC_CONF=expandable_segments:True python train.py   # older torch: PYTORCH_CUDA_ALLOC_CONF",
    )


def keep_cache() -> Fix:
    return Fix(
        "Remove torch.cuda.empty_cache() from the step",
        "It gives memory back that the next step asks for again.",
        "# delete the call",
    )


def less_memory(*, used: float | None) -> Fix:
    return Fix(
        "Use less memory",
        f"{_how_full(used)}.",
        "Halve batch_size and accumulate two steps, or torch.utils.checkpoint.checkpoint(block, x, "
        "use_reentrant=False)",
    )


def _how_full(used: float | None) -> str:
    return "The GPU's memory is short" if used is None else f"{percent(used)} of the GPU's memory is in use"


def done_once() -> str:
    return "What is done once, at the job's start (compiling, loading kernels, trying algorithms, first allocations),"


def done_once_refuted() -> str:
    return "Trace steps after the first hundred: if the GPU waits for the same calls there, they are not done once."


def not_projected(*, fills: bool) -> str:
    if fills:
        return "So this is a trace of the start: it says nothing about the steps that follow, or how fast they can be."
    return "Later steps do none of it, so no speed-up of the training is claimed for it."


def trace_later() -> Fix:
    return Fix(
        "Trace later steps",
        "What takes the time of the training shows once everything is loaded, compiled and allocated.",
        """\
with torch.profiler.profile(
    schedule=torch.profiler.schedule(wait=10, warmup=3, active=5, repeat=1),
    on_trace_ready=torch.profiler.tensorboard_trace_handler('traces'),
) as profiler:
    for batch in loader:
        train(batch)
        profiler.step()  # perfdoctor analyze traces""",
    )


def keep_caches(*, compiling: bool) -> Fix:
    return Fix(
        "Where jobs start often, keep what is made at the start",
        "Caches that outlive the job spare compiling; loading all kernels at once takes the pauses out of the first "
        "steps.",
        (_CACHES if compiling else "") + "export CUDA_MODULE_LOADING=EAGER  # loads before the first step, not in it",
    )
