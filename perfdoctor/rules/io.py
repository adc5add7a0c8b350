"""Input and output: reading from storage and networks, paging, and writing checkpoints and logs."""

from collections.abc import Iterator

from perfdoctor.causes import CHECKPOINT_WRITE, LOG_WRITE, NETWORK_READ, STORAGE_READ, SWAP
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import IN_MEMORY
from perfdoctor.messages import say
from perfdoctor.rules.case import Case
from perfdoctor.rules.input import no_more_workers, worker_fixes
from perfdoctor.rules.rule import Rule, times_rarer
from perfdoctor.rules.workers import plan_workers

# The kernel counts refaults in pages: of 4 KiB on x86-64, and mostly on ARM.
_PAGE_MB = 4096 / 1e6


def _read_otherwise(case: Case) -> Iterator[Advice]:
    share, busy = case.share(STORAGE_READ), case.number("device_busy")
    plan = plan_workers(case, STORAGE_READ)
    full = busy is not None and busy >= thresholds.FULL_DEVICE
    if not full:  # more readers are the cheapest change where the device has room
        yield from worker_fixes(case, STORAGE_READ, plan)
    yield from _larger_pieces(case)
    yield from _nearer(case)
    why = say("io.device_full", busy=busy) if full else no_more_workers(plan, share)
    yield advise("io.fewer_bytes", share=share, no_more_workers=why)


def _larger_pieces(case: Case) -> Iterator[Advice]:
    """How the job reads: mapped and faulting page by page, or in small pieces."""
    faults, size = case.number("major_faults"), case.number("bytes_per_read")
    fetched, asked = case.number("read_from_storage"), case.number("read_by_calls")
    known = fetched is not None and asked is not None
    # Storage delivers what read calls did not ask for: a memory map, if there are major faults at all.
    mostly_mapped = known and (asked or 0.0) < thresholds.MOSTLY * (fetched or 0.0)
    fewest = 1 if mostly_mapped else thresholds.MAPPED_FAULTS
    if faults is not None and faults >= fewest and (mostly_mapped or not known):
        yield advise("io.mapped_pieces", faults=case.measured("major_faults"))
    elif size is not None and size < thresholds.SMALL_READ and not mostly_mapped:
        yield advise("io.larger_files", size=size, rate=case.number("read_calls"))


def _nearer(case: Case) -> Iterator[Advice]:
    """Where the data lies: a network file system, or storage slower than memory that has room for it."""
    path, cached = case.hot_path(STORAGE_READ), case.number("page_cache")
    system = case.file_system(path)
    if system is not None and "network" in system:
        yield advise("io.copy_to_local", path=path, system=system.split()[0], available=case.number("memory_available"))
    if cached is None or cached < thresholds.PAGE_CACHE_HITS:
        yield advise("io.keep_in_memory", path=path, available=case.number("memory_available"))
    if _thrashes(case):
        yield advise("io.part_per_host", refaults=case.number("refaults"))


def _thrashes(case: Case) -> bool:
    """Whether a good part of what is read was in the page cache not long ago."""
    refaults, fetched = case.number("refaults"), case.number("read_from_storage")
    if refaults is None or fetched is None:
        return False
    return refaults * _PAGE_MB > max(thresholds.READ_AGAIN * fetched, _PAGE_MB)


def _fetch_otherwise(case: Case) -> Iterator[Advice]:
    yield from worker_fixes(case, NETWORK_READ, plan_workers(case, NETWORK_READ))
    yield advise("io.at_the_same_time", received=case.measured("received"))
    yield advise("io.local_copy")
    yield advise("io.larger_objects")
    if workers := int(case.setting("workers") or 0):
        yield advise("io.further_ahead", workers=workers)


def _need_less_memory(case: Case) -> Iterator[Advice]:
    workers = max((trainer.workers for trainer in case.trainers), default=0)
    if workers > 1:
        yield advise("io.fewer_workers", workers=workers)
    yield advise("io.no_python_objects", workers=workers)
    yield advise("io.more_memory", limit=case.setting("memory_limit_bytes"))


def _save_otherwise(case: Case) -> Iterator[Advice]:
    share, path = case.share(CHECKPOINT_WRITE), case.hot_path(CHECKPOINT_WRITE)
    times = times_rarer(share)
    yield advise(
        "io.save_behind",
        path=path,
        share=share,
        line=case.hot_line(CHECKPOINT_WRITE),
        together=len(case.trainers) > 1,
        gpu=case.uses_gpu,
    )
    yield advise(
        "io.save_less_often",
        share=share,
        times=times,
        bearable=thresholds.REPORTED_SHARE,
    )
    if case.file_system(path) not in IN_MEMORY:
        yield advise("io.faster_storage")


def _log_otherwise(case: Case) -> Iterator[Advice]:
    share = case.share(LOG_WRITE)
    times = times_rarer(share)
    yield advise(
        "io.log_less_often",
        path=case.hot_path(LOG_WRITE),
        share=share,
        line=case.hot_line(LOG_WRITE),
        times=times,
    )
    yield advise("io.faster_reader" if case.is_read_by_another(LOG_WRITE) else "io.no_flush")
    yield advise("io.another_thread", logger=case.settings.get("logger") == "yes")


IO_RULES = (
    Rule(
        STORAGE_READ,
        say("io.reading"),
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
        say("io.reading_refuted"),
    ),
    Rule(
        NETWORK_READ,
        say("io.fetching"),
        ("received", "packets", "retransmits", "worker_busy", "workers_busy", "worker_cores", "exposed_data"),
        _fetch_otherwise,
        say("io.fetching_refuted"),
    ),
    Rule(
        SWAP,
        say("io.paging"),
        ("swap_in", "swap_out", "swapped", "major_faults", "trainer_rss", "memory_available", "memory_pressure"),
        _need_less_memory,
        say("io.paging_refuted"),
    ),
    Rule(
        CHECKPOINT_WRITE,
        say("io.checkpoints"),
        ("written_to_storage", "written_by_calls", "device_written", "device_busy"),
        _save_otherwise,
        say("io.checkpoints_refuted"),
    ),
    Rule(
        LOG_WRITE,
        say("io.logs"),
        ("write_calls", "written_to_storage", "device_busy", "exposed_rest", "overlap"),
        _log_otherwise,
        say("io.logs_refuted"),
    ),
)
