"""Loader workers: how many keep up with the trainer, and why more of them would not help."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import counted, percent

_BATCHES = """\
class Batches(torch.utils.data.IterableDataset):
    def __iter__(self):
{rounds}
            yield prepare(chosen)  # what the loop does now to make a batch
# then: for batch in loader
loader = torch.utils.data.DataLoader(
    Batches(), batch_size=None, {options}
)"""
_ALONE = "        for chosen in order():"
_SHARED = """\
        mine = torch.utils.data.get_worker_info().id
        for chosen in itertools.islice(order(), mine, None, {workers}):"""
_COLLATE = """\
def prepare(samples):  # the loader's collate_fn: what it does now, and then what the loop does with the batch
    return prepared(torch.utils.data.default_collate(samples))"""
_FIRST_WORKERS = """
# Make the loader once, before the loop: workers that start anew for every few batches cost more than they save.
# An IterableDataset must split its data by torch.utils.data.get_worker_info() first."""


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
    threads: int | None,
    pin: bool,
    divides: bool,
    streamed: bool,
    tight: tuple[float, float] | None,
    shared: float | None,
    lost: float | None,
) -> Fix:
    why = f"In each second, preparing batches takes {busy:.2g} s and the trainer's other work {own:.2g} s"
    if useful < needed and cores is not None:
        taken = f", of which the job keeps {used_cores:.2g} busy already," if used_cores else ""
        why += f". On {counted(cores, 'core')}{taken} more than {counted(useful, 'worker')} would gain nothing"
    else:
        why += f": with {counted(needed, 'worker')} the trainer would not wait"
    if lost is not None:
        why += f". The first batch of each `for batch in loader` is waited for all the same: {lost:.2g} s of each"
    why += f". Now it has {now or 'no worker'}"
    why += f" in this loader; the {beside} there are serve another" if beside else ""
    change = f"DataLoader(..., {_options(useful, pin=pin)})"
    if threads is None and divides and cores is None:
        fewer = f"max(1, len(os.sched_getaffinity(0)) - {useful})"
        change += f"\ntorch.set_num_threads({fewer})  # leaves the workers their cores"
    also_why, also = _beside_workers(threads, tight, shared)
    divided = _FIRST_WORKERS if now == 0 else ""
    if streamed:
        divided = (
            f"\n# datasets splits a stream by its shards: stream.num_shards has to be {useful} or more, by more files"
        )
    title = _titled(f"Use {counted(useful, 'loader worker')}", threads)
    return Fix(title, f"{why}{also_why}.", change + also + divided)


def take_over(
    *,
    line: str | None,
    now: int,
    useful: int,
    busy: float,
    own: float,
    threads: int | None,
    pin: bool,
    tight: tuple[float, float] | None,
    shared: float | None,
    loader: bool,
) -> Fix:
    place = f", most of it at {line}" if line else ""
    why = (
        f"In each second, the loop itself prepares batches for {busy:.2g} s{place}, and its other work takes {own:.2g} "
        f"s. Workers would do the former in parallel with the latter; now it has {now or 'no worker'}"
    )
    options = _options(useful, pin=pin)
    change = f"{_COLLATE}\nDataLoader(..., collate_fn=prepare, {options})" if loader else _made_in_turn(useful, options)
    title = f"Prepare batches in {counted(useful, 'loader worker')} instead of the loop"
    also_why, also = _beside_workers(threads, tight, shared)
    moved = "" if loader else ". Its lines for one pass over the data go into __iter__, with order and random numbers"
    moved += ", which have to be the same in all workers" if moved and useful > 1 else ""
    return Fix(_titled(title, threads), f"{why}{moved}{also_why}.", change + also)


def _made_in_turn(workers: int, options: str) -> str:
    """A loader of what the loop makes: of several workers each makes its own batches of the same order."""
    rounds = _ALONE if workers == 1 else _SHARED.format(workers=workers)
    return _BATCHES.format(rounds=rounds, options=options)


def _options(workers: int, *, pin: bool) -> str:
    return f"num_workers={workers}, persistent_workers=True{', pin_memory=True' if pin else ''}"


def _titled(title: str, threads: int | None) -> str:
    return title if threads is None else f"{title} and {counted(threads, 'compute thread')}"


def _beside_workers(threads: int | None, tight: tuple[float, float] | None, shared: float | None) -> tuple[str, str]:
    """What workers need beside themselves: what is to be said of it, and to be changed."""
    why, change = "", ""
    if threads is not None:
        why += ". These and the arithmetic's threads are more than the cores: what workers gain, the arithmetic loses"
        change += f"\ntorch.set_num_threads({threads})  # leaves the workers their cores"
    if tight is not None:
        size, available = tight
        why += (
            f". Mind the memory: one worker takes {size / 1000:,.2g} GB, and {available / 1000:,.2g} GB are available"
        )
    if shared is not None:
        why += f". Batches come through /dev/shm, which has {shared:,.0f} MB free"
        change += "\n# in a container: docker run --shm-size=8g, or an emptyDir of medium Memory at /dev/shm"
    return why, change


def spread_work(*, busiest: float, following: float) -> Fix:
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


def short_rounds(*, first: float) -> str:
    return (
        f"Workers will not help as it is: in each second {first:.2g} s go to first batches of an iterator, which no "
        "worker can make ahead. Take more batches from one `for batch in loader` before the next one begins."
    )


def keep_pool(*, place: str, share: float) -> Fix:
    return Fix(
        "Make the pool once, before the loop",
        f"At {place}, processes of a pool come up and end again and again: {percent(share)} of the time. Each is "
        "forked, and its parent copies every page of memory that it writes to afterwards.",
        """\
from concurrent.futures import ProcessPoolExecutor
pool = ProcessPoolExecutor(max_workers=2)  # once, before the loop, with as many as now
results = list(pool.map(work, items))  # in the loop, and no with-statement around it
pool.shutdown()  # behind the loop""",
    )
