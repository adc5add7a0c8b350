"""Reading from storage: where the data lies, and in which pieces it is read."""

from collections.abc import Iterator

from perfdoctor.causes import STORAGE_READ
from perfdoctor.diagnosis import Advice, advise, say
from perfdoctor.knowledge import thresholds
from perfdoctor.rules.case import Case
from perfdoctor.rules.rule import Rule
from perfdoctor.rules.workers import no_more_workers, plan_workers, worker_fixes

_PAGE_MB = 4096 / 1e6


def _read_otherwise(case: Case) -> Iterator[Advice]:
    share, busy = case.share(STORAGE_READ), case.number("device_busy")
    plan = plan_workers(case, STORAGE_READ)
    full = busy is not None and busy >= thresholds.FULL_DEVICE
    if not full:  # more readers are the cheapest change where the device has room
        yield from worker_fixes(case, STORAGE_READ, plan)
    yield from _larger_pieces(case)
    yield from _nearer(case)
    why = say("storage.device_full", busy=busy) if full else no_more_workers(plan, share)
    yield advise("storage.fewer_bytes", share=share, no_more_workers=why)


def _larger_pieces(case: Case) -> Iterator[Advice]:
    """How the job reads: mapped and faulting page by page, or in small pieces."""
    faults, size = case.number("major_faults"), case.number("bytes_per_read")
    fetched, asked = case.number("read_from_storage"), case.number("read_by_calls")
    known = fetched is not None and asked is not None
    # Storage delivers what read calls did not ask for: a memory map, if there are major faults at all.
    mostly_mapped = known and (asked or 0.0) < thresholds.MOSTLY * (fetched or 0.0)
    fewest = 1 if mostly_mapped else thresholds.MAPPED_FAULTS
    if faults is not None and faults >= fewest and (mostly_mapped or not known):
        yield advise("storage.mapped_pieces", faults=case.measured("major_faults"))
    elif size is not None and size < thresholds.SMALL_READ and not mostly_mapped:
        yield advise("storage.larger_files", size=size, rate=case.number("read_calls"))


def _nearer(case: Case) -> Iterator[Advice]:
    """Where the data lies: a network file system, or storage slower than memory that has room for it."""
    path, cached = case.hot_path(STORAGE_READ), case.number("page_cache")
    system = case.file_system(path)
    if system is not None and "network" in system:
        yield advise("storage.copy_to_local", path=path, system=system.split()[0])
    if cached is None or cached < thresholds.PAGE_CACHE_HITS:
        yield advise("storage.keep_in_memory", path=path, available=case.number("memory_available"))
    if _thrashes(case):
        yield advise("storage.part_per_host", refaults=case.number("refaults"))


def _thrashes(case: Case) -> bool:
    """Whether a good part of what is read was in the page cache not long ago."""
    refaults, fetched = case.number("refaults"), case.number("read_from_storage")
    if refaults is None or fetched is None:
        return False
    return refaults * _PAGE_MB > max(thresholds.READ_AGAIN * fetched, _PAGE_MB)


STORAGE_RULES = (
    Rule(
        STORAGE_READ,
        say("storage.reading"),
        (
            "read_from_storage",
            "read_by_calls",
            "page_cache",
            "bytes_per_read",
            "major_faults",
            "device_busy",
            "device_read",
            "read_latency",
            "read_from_server",
            "refaults",
            "workers_busy",
            "exposed_data",
        ),
        _read_otherwise,
        say("storage.reading_refuted"),
    ),
)
