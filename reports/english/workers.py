"""Loader workers: how many, and how even their work is."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import counted, percent


def more(
    *,
    now: int,
    beside: int,
    needed: int,
    useful: int,
    busy: float,
    own: float,
    cores: float | None,
    used_cores: float | None,
    pin: bool,
) -> Fix:
    why = (
        f"In each second, preparing batches takes {busy:.2g} s and the trainer's other work {own:.2g} s: "
        f"with {counted(needed, 'worker')} the trainer would not wait. It has {now or 'none'}"
    )
    why += f" in this loader, the {beside} there are serve another" if beside else ""
    if useful < needed and cores is not None:
        taken = f", of which the job keeps {used_cores:.2g} busy already" if used_cores else ""
        why += f", and on {counted(cores, 'core')}{taken}, more than {useful} would gain nothing"
    change = f"DataLoader(..., num_workers={useful}, persistent_workers=True{', pin_memory=True' if pin else ''})"
    if now == 0:
        change += "\n# An IterableDataset must split its data by torch.utils.data.get_worker_info() first."
    return Fix(f"Use {counted(useful, 'loader worker')}", f"{why}.", change)


def spread(*, busiest: float, following: float) -> Fix:
    return Fix(
        "Give each loader worker as much to do",
        f"One worker is busy {percent(busiest)} of the time, the next one {percent(following)}: batches are handed "
        "over in turn, so the trainer and the other workers wait for that one. More workers will not help.",
        "itertools.islice(samples, info.id, None, info.num_workers)  # by samples, where it was by files\n"
        "DataLoader(..., in_order=False)  # or, from PyTorch 2.6: batches as they come, fewer from a slow worker",
    )


def take_cores(*, now: int) -> str:
    count = "the one there is" if now == 1 else f"the {now} there are"
    return (
        f"More workers will not help: {count} can prepare batches as fast as the trainer takes them, but preparing "
        "them takes cores that the trainer's arithmetic needs."
    )


def idle(*, now: int, busy: float) -> str:
    have = "the one there is has" if now == 1 else f"the {now} there are have"
    return (
        f"More workers will not help: {have} only {busy:.2g} s of work in each second, so it is the order or the size "
        "of their pieces that makes the trainer wait."
    )


def no_free_core(*, cores: float) -> str:
    return f"More workers will not help: no core of the {cores:g} that the job may use is free."
