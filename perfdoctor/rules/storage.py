"""Reading from storage: where the data lies, and in which pieces it is read."""

import shlex

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.finding import REPORTED, finding
from perfdoctor.rules.lookups import hot_path
from perfdoctor.rules.wording import amount, percent, takes
from perfdoctor.rules.workers import no_more_workers, plan_workers, worker_fixes

# Requests under way for more of the time than this: further readers find the device taken (%util in iostat;
# devices with many queues may still have room, so this only holds back advice).
_DEVICE_FULL = 0.85
# Below this a read call is small: the cost of the request outweighs that of the bytes (the usual read-ahead
# window starts at 64 KB).
_SMALL_READ = 64 * 1024
# Storage delivers what read calls did not ask for: a memory map, if there are major faults at all. Read-ahead
# makes them few: 22 each second brought 149 MB/s when measured, 1,465 without it.
_MAPPED_CALLS = 0.5
_MAPPED_FAULTS = 50.0
_HIT = 0.5
# Of the bytes read, the part that had just been dropped from the page cache before dropping is worth a word.
_AGAIN = 0.1
_PAGE_MB = 4096 / 1e6


def storage_read(case: Case) -> Finding | None:
    """Reads from local or mounted storage, page faults of mapped files included."""
    cause = "io.storage_read"
    if case.share(cause) < REPORTED:
        return None
    plan = plan_workers(case, cause)
    full = (case.number("device_busy") or 0.0) >= _DEVICE_FULL
    more_readers = [] if full else worker_fixes(case, cause, plan)
    fixes = [*_pattern_fixes(case), *_place_fixes(case, cause)]
    # More readers come first only where the device has room: they are the cheapest change.
    fixes = [*more_readers, *fixes]
    if full:
        busy = percent(case.number("device_busy") or 0)
        why = f" More workers will not help: the device had requests under way for {busy} of the time."
    else:
        why = no_more_workers(plan, case.share(cause))
    fixes.append(
        Fix(
            "Read fewer bytes",
            f"Reading holds the job up for {percent(case.share(cause))} of the time.{why}",
            "Store samples smaller: compressed, resized to the training size, as uint8 or float16.",
        )
    )
    return finding(
        case,
        cause,
        takes(case, cause, "Reading from storage"),
        (
            "read_from_storage", "read_by_calls", "page_cache", "bytes_per_read", "major_faults", "device_busy",
            "device_read", "read_latency", "read_from_server", "refaults", "workers_busy", "exposed_data",
        ),
        fixes,
        "Read the same files twice in a row: if the second pass, from the page cache, is as slow as the "
        "first, storage is not the cause.",
    )


def _pattern_fixes(case: Case) -> list[Fix]:
    """How the job reads: mapped and faulting page by page, or in small pieces."""
    fixes = []
    faults, size = case.number("major_faults"), case.number("bytes_per_read")
    fetched, asked = case.number("read_from_storage"), case.number("read_by_calls")
    mostly_mapped = fetched is not None and asked is not None and asked < _MAPPED_CALLS * fetched
    unknown = fetched is None or asked is None
    mapped = faults is not None and (
        (mostly_mapped and faults >= 1) or (unknown and faults >= _MAPPED_FAULTS)
    )
    if mapped:
        fixes.append(
            Fix(
                "Read mapped files in larger pieces",
                f"Most bytes come through page faults of a mapped file ({amount(case, 'major_faults')}), a "
                "few pages at a time, and not through read calls.",
                "Shuffle blocks of neighbouring samples instead of single ones, or read a sample with one "
                "os.pread(); before random access: mm.madvise(mmap.MADV_WILLNEED).",
            )
        )
    elif size is not None and size < _SMALL_READ and not mostly_mapped:
        rate = case.number("read_calls")
        calls = f" ({rate:,.0f} calls each second)" if rate is not None else ""
        fixes.append(
            Fix(
                "Pack samples into larger files",
                f"A read call asks for {size:,.0f} bytes on average{calls}: the cost is in the number of "
                "requests.",
                "Write samples into shards of 100 MB or more (tar with WebDataset, Parquet, LMDB) and read "
                "a shard in order, shuffling within a buffer.",
            )
        )
    return fixes


def _place_fixes(case: Case, cause: str) -> list[Fix]:
    """Where the data lies: a network file system, or storage slower than memory that has room for it."""
    path = hot_path(case, cause)
    system = file_system(case, path)
    where = path or "the data"
    available = case.number("memory_available")
    fixes = []
    if system is not None and "network" in system:
        fixes.append(
            Fix(
                "Copy the data to local storage before training",
                f"{where} is on a network file system ({system.split()[0]}).",
                f"rsync -a {_folder(path)} $TMPDIR/   # then train from there"
                if path
                else "rsync -a DATA $TMPDIR/",
            )
        )
    room = f" {available / 1000:,.1f} GB of memory are available." if available is not None else ""
    if case.number("page_cache") is None or (case.number("page_cache") or 0) < _HIT:
        fixes.append(
            Fix(
                "Keep the data in memory, if it fits",
                f"The reads reach the device instead of the page cache.{room}",
                f"find {_folder(path)} -type f -exec cat {{}} + > /dev/null   # once, before training",
            )
        )
    if _thrashing(case):
        fixes.append(
            Fix(
                "Train on a part of the data per host",
                f"The page cache is too small for the data: {case.number('refaults') or 0:,.0f} pages each "
                "second are read again soon after they were dropped.",
                "Give each host its own fixed share of the files, small enough for its memory.",
            )
        )
    return fixes


def _thrashing(case: Case) -> bool:
    """Whether a good part of what is read was in the page cache not long ago."""
    refaults, fetched = case.number("refaults"), case.number("read_from_storage")
    return (
        refaults is not None and fetched is not None and refaults * _PAGE_MB > max(_AGAIN * fetched, _PAGE_MB)
    )


def file_system(case: Case, path: str | None) -> str | None:
    """Type of the file system that holds a path, with the word ``network`` behind it where it is one."""
    if path is None:
        return None
    mounts = [name[len("mount.") :] for name in case.settings if name.startswith("mount.")]
    holding = [mount for mount in mounts if path == mount or path.startswith(mount.rstrip("/") + "/")]
    return str(case.settings[f"mount.{max(holding, key=len)}"]) if holding else None


def _folder(path: str | None) -> str:
    """The folder of a path, safe to paste into a shell."""
    return shlex.quote(path.rpartition("/")[0] or "/") if path else "DATA"


STORAGE_RULES = (storage_read,)
