"""Input and output: reading from storage and networks, paging, and writing checkpoints and logs."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perfdoctor.causes import CHECKPOINT_WRITE, LOG_WRITE, NETWORK_READ, STORAGE_READ, SWAP
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import IN_MEMORY, PAGE_BYTES
from perfdoctor.knowledge.libraries import BESIDE, COMPRESS, LOGS
from perfdoctor.messages import Message, say
from perfdoctor.rules.case import Case
from perfdoctor.rules.rule import Rule, rarer, times_rarer
from perfdoctor.rules.workers import no_more_workers, plan_workers, worker_fixes
from perfdoctor.timeline.amounts import Amounts

# The kernel counts refaults in pages.
_PAGE_MB = PAGE_BYTES / 1e6


def _read_otherwise(case: Case) -> Iterator[Advice]:
    share, reached = case.share(STORAGE_READ), _reached(case, _READ_LIMITS)
    plan, why = plan_workers(case, STORAGE_READ), _no_more_readers(case, reached)
    yield from _raise_limit(reached)
    if why is None:  # more readers are the cheapest change where the device has room
        yield from worker_fixes(case, STORAGE_READ, plan)
    if reached is None or reached.operations:
        yield from _larger_pieces(case)
    yield from _nearer(case)
    yield advise("io.fewer_bytes", share=share, no_more_workers=why or no_more_workers(plan, share))


class _Limit(NamedTuple):
    """A limit of a control group.

    Attributes:
        number: how much of it is used over all of the time.
        writes: it is for writing, else for reading.
        operations: it counts requests, else bytes.
        used: the fraction that is used while somebody waits.
    """

    number: str
    writes: bool
    operations: bool
    used: float = 0.0


_READ_LIMITS = (_Limit("read_limit_used", False, False), _Limit("reads_limit_used", False, True))
_WRITE_LIMITS = (_Limit("written_limit_used", True, False), _Limit("writes_limit_used", True, True))


def _reached(case: Case, limits: Iterable[_Limit], within: float = 1.0) -> _Limit | None:
    """The one that is used up most; None where the job reaches none.

    Args:
        case: what was measured.
        limits: those in question.
        within: in which part of the time it is used: workers read all the time, and a trainer writes while it waits.
    """
    used = (limit._replace(used=(case.number(limit.number) or 0.0) / within) for limit in limits)
    most = max(used, key=lambda limit: limit.used)
    return most if most.used >= thresholds.LIMIT_REACHED else None


def _raise_limit(reached: _Limit | None) -> Iterator[Advice]:
    if reached is not None:
        used = min(1.0, reached.used)
        yield advise("io.raise_limit", used=used, writes=reached.writes, operations=reached.operations)


def _no_more_readers(case: Case, reached: _Limit | None) -> Message | None:
    """Why further readers would only share what there is; None where the storage may serve them beside the others."""
    share, busy = case.share(STORAGE_READ), case.number("device_busy")
    if reached is not None:
        return say("io.limit_reached")
    if busy is None:
        return None
    if busy >= thresholds.FULL_DEVICE:
        return say("io.device_full", busy=busy)
    from_device = bool(case.number("read_from_storage")) and case.network_system(STORAGE_READ) is None
    held = from_device and busy < thresholds.HELD_BACK * share
    return say("io.held_back", busy=busy, share=share) if held else None


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
    if (system := case.network_system(STORAGE_READ)) is not None:
        yield advise("io.copy_to_local", path=path, system=system, available=case.number("memory_available"))
    if (cached is None or cached < thresholds.PAGE_CACHE_HITS) and not _thrashes(case, thresholds.MOSTLY):
        yield advise("io.keep_in_memory", path=path, available=case.number("memory_available"))
    if _thrashes(case, thresholds.READ_AGAIN):
        yield advise("io.part_per_host", refaults=case.number("refaults"))


def _thrashes(case: Case, least: float) -> bool:
    """Whether at least such a part of what is read was in the page cache not long ago."""
    refaults, fetched = case.number("refaults"), case.number("read_from_storage")
    if refaults is None or fetched is None:
        return False
    return refaults * _PAGE_MB > max(least * fetched, _PAGE_MB)


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
    yield from _raise_limit(_reached(case, _WRITE_LIMITS, share))
    packing = case.calls_among(CHECKPOINT_WRITE, COMPRESS)
    packed = sum(packing.values())
    if packed >= thresholds.MOSTLY:
        package = max(packing, key=packing.__getitem__).partition(" ")[0]
        yield advise("io.save_unpacked", share=packed * share, package=package)
    yield advise(
        "io.save_behind",
        path=path,
        share=share,
        line=case.hot_line(CHECKPOINT_WRITE),
        together=_save_together(case),
        gpu=case.uses_gpu,
    )
    yield advise(
        "io.save_less_often",
        share=share,
        times=times,
        bearable=thresholds.REPORTED_SHARE,
        loop=case.loop,
        when=rarer(case, "saves_when", times),
    )
    if case.file_system(path) not in IN_MEMORY:
        yield advise("io.faster_storage")


def _save_together(case: Case) -> bool:
    """Whether several ranks save at the same time, and not one alone while the others go on or wait for it."""
    saving = sorted(trainer.phases.get("saving", 0.0) for trainer in case.trainers)
    return len(saving) > 1 and saving[-2] >= thresholds.MOSTLY * saving[-1] > 0


def _log_otherwise(case: Case) -> Iterator[Advice]:
    share, path = case.share(LOG_WRITE), case.hot_path(LOG_WRITE)
    times = times_rarer(share)
    if path:
        yield from _raise_limit(_reached(case, _WRITE_LIMITS, share))
    talkative, part = _talkative_library(case)
    if part >= thresholds.MOSTLY:
        yield advise("io.quiet_library", package=talkative, line=case.hot_line(LOG_WRITE), share=part * share)
        return
    yield advise(
        "io.log_less_often",
        path=path,
        share=share,
        line=case.hot_line(LOG_WRITE),
        times=times,
        loop=case.loop,
        when=rarer(case, "logs_when", times),
    )
    if case.is_read_by_another(LOG_WRITE):
        yield advise("io.faster_reader")
    elif path:  # what draws pictures or makes up lines waits for no file
        yield advise("io.no_flush")
    if (logger := case.settings.get("logger")) != BESIDE:
        yield advise("io.another_thread", logger=logger == "yes")


def _talkative_library(case: Case) -> tuple[str, float]:
    """The library whose own records are most of the log, called for something else, and their part; "", 0 if none."""
    parts: Amounts[str] = Amounts()
    if "logger" in case.settings and not case.loop:  # such a loop logs what the job trains
        for call, part in case.library_calls.get(LOG_WRITE, ()):
            package = call.partition(" ")[0]
            parts[package] += part if package and package not in LOGS else 0.0
    package = max(parts, key=parts.__getitem__, default="")
    return package, parts[package] if package else 0.0


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
            "read_limit_used",
            "reads_limit_used",
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
        (
            "written_to_storage",
            "written_by_calls",
            "device_written",
            "device_busy",
            "written_limit_used",
            "writes_limit_used",
        ),
        _save_otherwise,
        say("io.checkpoints_refuted"),
    ),
    Rule(
        LOG_WRITE,
        say("io.logs"),
        (
            "write_calls",
            "written_to_storage",
            "device_busy",
            "written_limit_used",
            "writes_limit_used",
            "exposed_rest",
            "overlap",
        ),
        _log_otherwise,
        say("io.logs_refuted"),
    ),
)
