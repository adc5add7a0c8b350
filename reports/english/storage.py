"""Reading from storage: where the data lies, and in which pieces it is read."""

import shlex

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.english.phrases import amount, percent, then


def reading() -> str:
    return "Reading from storage"


def reading_refuted() -> str:
    return (
        "Read the same files twice in a row: if the second pass, from the page cache, is as slow as the first, storage "
        "is not the cause."
    )


def fewer_bytes(*, share: float, no_more_workers: str | None) -> Fix:
    return Fix(
        "Read fewer bytes",
        f"Reading holds the job up for {percent(share)} of the time.{then(no_more_workers)}",
        "Store samples smaller: compressed, resized to the training size, as uint8 or float16.",
    )


def device_full(*, busy: float) -> str:
    return f"More workers will not help: the device had requests under way for {percent(busy)} of the time."


def mapped_pieces(*, faults: Evidence) -> Fix:
    return Fix(
        "Read mapped files in larger pieces",
        f"Most bytes come through page faults of a mapped file ({amount(faults)}), a few pages at a time, and not "
        "through read calls.",
        "Shuffle blocks of neighbouring samples instead of single ones, or read a sample with one os.pread(); before "
        "random access: mm.madvise(mmap.MADV_WILLNEED).",
    )


def larger_files(*, size: float, rate: float | None) -> Fix:
    calls = f" ({rate:,.0f} calls each second)" if rate is not None else ""
    return Fix(
        "Pack samples into larger files",
        f"A read call asks for {size:,.0f} bytes on average{calls}: the cost is in the number of requests.",
        "Write samples into shards of 100 MB or more (tar with WebDataset, Parquet, LMDB) and read a shard in order, "
        "shuffling within a buffer.",
    )


def copy_to_local(*, path: str, system: str) -> Fix:
    return Fix(
        "Copy the data to local storage before training",
        f"{path} is on a network file system ({system}).",
        f"rsync -a {_folder(path)} $TMPDIR/   # then train from there",
    )


def keep_in_memory(*, path: str | None, available: float | None) -> Fix:
    room = f" {available / 1000:,.1f} GB of memory are available." if available is not None else ""
    return Fix(
        "Keep the data in memory, if it fits",
        f"The reads reach the device instead of the page cache.{room}",
        f"find {_folder(path)} -type f -exec cat {{}} + > /dev/null   # once, before training",
    )


def part_per_host(*, refaults: float) -> Fix:
    return Fix(
        "Train on a part of the data per host",
        f"The page cache is too small for the data: {refaults:,.0f} pages each second are read again soon after they "
        "were dropped.",
        "Give each host its own fixed share of the files, small enough for its memory.",
    )


def _folder(path: str | None) -> str:
    """The folder of a path, safe to paste into a shell."""
    return shlex.quote(path.rpartition("/")[0] or "/") if path else "DATA"
