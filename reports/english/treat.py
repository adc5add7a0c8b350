"""Treatments: what is changed, why that may help, and the lines that make it permanent; and why a trial failed."""

import shlex

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import exports


def more_workers(*, workers: int, now: int) -> Fix:
    return Fix(
        f"{workers} loader worker{'' if workers == 1 else 's'} instead of {now}",
        "Batches are prepared beside the training, by processes that stay.",
        f"DataLoader(..., num_workers={workers}, persistent_workers=True)",
    )


def workers_and_threads(*, workers: int, now: int, threads: int) -> Fix:
    return Fix(
        f"{workers} loader worker{'' if workers == 1 else 's'} instead of {now}, and {threads} compute "
        f"thread{'' if threads == 1 else 's'}",
        "Workers take cores from the arithmetic; with fewer threads both fit.",
        f"DataLoader(..., num_workers={workers}, persistent_workers=True)\ntorch.set_num_threads({threads})",
    )


def fewer_workers(*, workers: int, now: int) -> Fix:
    return Fix(
        f"{workers} loader worker{'' if workers == 1 else 's'} instead of {now}",
        "Workers take cores from the training, and handing batches over costs time.",
        f"DataLoader(..., num_workers={workers})",
    )


def keep_workers() -> Fix:
    return Fix(
        "Loader workers that stay from epoch to epoch",
        "Otherwise they are started anew for each.",
        "DataLoader(..., persistent_workers=True)",
    )


def prefetch_more() -> Fix:
    return Fix(
        "More batches prepared ahead",
        "Where batches differ in cost, those that are ready bridge the slow ones.",
        "DataLoader(..., prefetch_factor=8)",
    )


def share_by_name() -> Fix:
    return Fix(
        "Batches shared by name",
        "Workers then pass names of shared memory instead of open files.",
        'torch.multiprocessing.set_sharing_strategy("file_system")  # before the loader is made',
    )


def fork_server() -> Fix:
    return Fix(
        "Loader workers from a fork server",
        "It has imported torch once and is small, so a fork of it is quicker than one of the trainer, or a new Python.",
        'multiprocessing.set_forkserver_preload(["__main__", "torch"])\n'
        'DataLoader(..., multiprocessing_context="forkserver")',
    )


def fork() -> Fix:
    return Fix(
        "Forked loader workers",
        "They begin with all that the trainer has loaded.",
        'DataLoader(..., multiprocessing_context="fork")',
    )


def pin() -> Fix:
    return Fix(
        "Batches in pinned memory",
        "Copies from there to the GPU are faster and can overlap with computing.",
        "DataLoader(..., pin_memory=True)  # and batch.to(device, non_blocking=True)",
    )


def cached_batches() -> Fix:
    return Fix(
        "The same few batches again and again",
        "It shows how fast the job would be if its input cost nothing.",
        "Not a change to keep: it is the most that a faster input can bring.",
    )


def staged(*, places: tuple[str, ...]) -> Fix:
    named, kept = (" ".join(shlex.quote(root + place) for place in places) for root in ("", "/dev/shm"))
    return Fix(
        "The files that are read, in memory",
        "The job waits for them, and memory has room for them.",
        f"cp -r --parents {named} /dev/shm/  # before training, and read them below /dev/shm then\n"
        f"rm -r {kept}  # afterwards: it is memory",
    )


def threads(*, threads: int, now: int) -> Fix:
    return Fix(
        f"{threads} compute thread{'' if threads == 1 else 's'} instead of {now}",
        "Threads that find no free core, or too little to do, cost more than they bring.",
        f"torch.set_num_threads({threads})  # or: export OMP_NUM_THREADS={threads}",
    )


def bound(*, split: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], threads: int | None) -> Fix:
    own, others = ([one[part] for one in split] for part in (0, 1))
    which = '[int(os.environ["LOCAL_RANK"])]' if len(split) > 1 else ""
    fewer = f", and {threads} compute thread{'' if threads == 1 else 's'}" if threads else ""
    who = "The trainer and its loader workers on cores of their" if any(others) else "Each trainer on cores of its"
    bind, bind_workers = (f"os.sched_setaffinity(0, {one if which else one[0]}{which})" for one in (own, others))
    lines = ["import os", f"{bind}  # before torch is imported"]
    if any(others):
        lines += ["", "def on_their_cores(worker):", f"    {bind_workers}", ""]
        lines += ["DataLoader(..., worker_init_fn=on_their_cores)"]
    if threads:
        lines.append(f"torch.set_num_threads({threads})")
    return Fix(
        f"{who} own{fewer}",
        "They then do not take turns on a core, and find their data in its caches.",
        "\n".join(lines),
    )


def sleeping_threads() -> Fix:
    return Fix(
        "Compute threads that sleep while they wait",
        "By default they spin for a while, on cores that others could use.",
        "export OMP_WAIT_POLICY=PASSIVE",
    )


def freeze() -> Fix:
    return Fix(
        "Garbage collection (GC) without the objects that stay",
        "What exists after the first steps is not looked through again, and young objects more rarely.",
        "gc.freeze()  # after the first steps\ngc.set_threshold(50_000, 20, 20)",
    )


def collect_rarely(*, line: str) -> Fix:
    return Fix(
        "gc.collect() at every 100th call only",
        f"{line} calls it.",
        "if step % 100 == 0:\n    gc.collect()",
    )


def keep_memory(*, variables: tuple[tuple[str, str], ...]) -> Fix:
    return Fix(
        "Freed memory is kept for the next step",
        "Otherwise large tensors are given back to the kernel and fetched anew, page by page, in every step.",
        exports(variables),
    )


def huge_pages(*, variables: tuple[tuple[str, str], ...]) -> Fix:
    return Fix(
        "Memory in pages of 2 MiB",
        "The processor then needs fewer entries to find its way in large tensors.",
        exports(variables),
    )


def allocator(*, name: str, preload: str) -> Fix:
    return Fix(
        f"{name} as memory allocator",
        "It keeps and reuses memory, and lets threads allocate without waiting for each other.",
        exports((("LD_PRELOAD", preload),)),
    )


def growing_segments() -> Fix:
    return Fix(
        "Segments of GPU memory that grow",
        "Pieces of other sizes fit, and the allocator need not give memory back and fetch it anew.",
        "export PYTORCH_ALLOC_CONF=expandable_segments:True",
    )


def optimizer(*, option: str) -> Fix:
    return Fix(
        f"An optimizer with {option}=True",
        "All parameters are updated by a few calls instead of some for each.",
        f"Optimizer(..., {option}=True)",
    )


def channels_last() -> Fix:
    return Fix(
        "Images with their channels last",
        "Many kernels for convolutions work in this layout.",
        "model = model.to(memory_format=torch.channels_last)",
    )


def compile() -> Fix:
    return Fix(
        "A compiled model",
        "Operators are fused and their dispatch is saved; the first steps take longer.",
        "model.compile()  # before the first step",
    )


def cudnn_benchmark() -> Fix:
    return Fix(
        "cuDNN tries which kernel is fastest",
        "For shapes that stay the same.",
        "torch.backends.cudnn.benchmark = True",
    )


def tf32() -> Fix:
    return Fix(
        "TF32 for products of float32",
        "Tensor cores then do them, with 10 bits of mantissa.",
        'torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True',
    )


def buckets() -> Fix:
    return Fix(
        "Larger buckets of gradients",
        "Fewer and larger collectives, and no copy of the gradients.",
        "DistributedDataParallel(..., bucket_cap_mb=100, gradient_as_bucket_view=True)",
    )


def no_sync(*, passes: int) -> Fix:
    return Fix(
        "Gradients exchanged once per step",
        f"They are accumulated over {passes} passes, and exchanged in each of them.",
        f"""\
last = number % {passes} == {passes - 1}
with contextlib.nullcontext() if last else model.no_sync():  # around the forward pass too, or nothing is saved
    (criterion(model(inputs), targets) / {passes}).backward()
if last:
    optimizer.step(); optimizer.zero_grad()""",
    )


def unset(*, name: str) -> Fix:
    return Fix(f"Without {name}", "It is for debugging, and slows down every step.", f"unset {name}")


def all_instructions(*, name: str) -> Fix:
    return Fix(f"Without {name}", "It keeps the arithmetic from instructions that the CPU may have.", f"unset {name}")


def no_anomaly_detection() -> Fix:
    return Fix(
        "Without anomaly detection",
        "It records a traceback for every operator.",
        "torch.autograd.set_detect_anomaly(False)",
    )


def no_saves() -> Fix:
    return Fix(
        "No checkpoints",
        "It shows how fast the job would be if saving cost nothing.",
        "Not a change to keep: it is the most that saving less, or beside the training, can bring.",
    )


def crashed(*, status: int, said: str) -> str:
    ended = f"The job was ended by signal {-status}" if status < 0 else f"The job ended with status {status}"
    return f"{ended}: {said}" if said else f"{ended}, and said nothing."


def no_step(*, ended: bool, waited: float) -> str:
    return "The job ended without a training step." if ended else f"No training step within {waited:.0f} s."


def few_steps(*, steps: int, ended: bool) -> str:
    why = "the job ended" if ended else "its time was up"
    return f"Only {steps} step{'' if steps == 1 else 's'} before {why}."


def not_applied() -> str:
    return "There is nothing in this job that the change applies to."


def nothing_to_stage() -> str:
    return "The files that it waits for are made by each run itself, or lie in memory already."


def staged_with_code() -> str:
    return "The files that it waits for lie in its working folder itself, or above it, and not in folders of their own."


def no_room_to_stage(*, size: float, room: float) -> str:
    return f"Its files take {size / 1e9:,.1f} GB or more; a copy may take {room / 1e9:,.1f}, half of the free memory."


def too_slow_to_stage() -> str:
    return "A copy of its files takes too long for these minutes."


def not_staged(*, why: str) -> str:
    reason = why or "A process may not have mounts of its own: that takes root, or namespaces of users"
    return f"A copy in memory cannot be put in the place of its files. {reason}."


def no_time(*, needed: float) -> str:
    return f"No time left: two more trials take about {needed:.0f} s, and the best is tried again after that."


def dry_run() -> str:
    return "A dry run only says what would be tried."


def given_up() -> str:
    return "Much slower at first, and not tried again."


def interrupted() -> str:
    return "Interrupted before it could be tried twice."


def several_ranks() -> str:
    return "Changes are tried from inside in jobs of one rank only: all ranks would have to change at the same step."


def not_waiting() -> str:
    return "The training ended before changes could be tried between its steps."


def between_steps(*, headline: str, changes: int, minutes: float) -> str:
    if not changes:
        return f"{headline}."
    some = "one change" if changes == 1 else f"{changes} changes"
    return f"{headline}. Trying {some} between steps, for up to {minutes:g} min; the training goes on."
