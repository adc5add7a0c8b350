"""Reading from the network, and from swap: data that is farther away than it should be."""

from collections.abc import Iterator

from perfdoctor.causes import NETWORK_READ, SWAP
from perfdoctor.diagnosis import Advice, advise, say
from perfdoctor.rules.case import Case
from perfdoctor.rules.rule import Rule, freed
from perfdoctor.rules.workers import plan_workers, worker_fixes


def _fetch_otherwise(case: Case) -> Iterator[Advice]:
    yield from worker_fixes(case, NETWORK_READ, plan_workers(case, NETWORK_READ))
    yield advise("remote.at_the_same_time", received=case.measured("received"))
    yield advise("remote.local_copy", freed(case.share(NETWORK_READ)))
    yield advise("remote.larger_objects")
    if (case.setting("workers") or 0) > 0:
        yield advise("remote.further_ahead")


def _need_less_memory(case: Case) -> Iterator[Advice]:
    workers = max((trainer.workers for trainer in case.trainers), default=0)
    if workers > 1:
        yield advise("remote.fewer_workers", workers=workers)
    yield advise("remote.no_python_objects", workers=workers)
    yield advise("remote.more_memory", limit=case.setting("memory_limit_bytes"))


REMOTE_RULES = (
    Rule(
        NETWORK_READ,
        say("remote.fetching"),
        ("received", "packets", "retransmits", "worker_busy", "workers_busy", "worker_cores", "exposed_data"),
        _fetch_otherwise,
        say("remote.fetching_refuted"),
    ),
    Rule(
        SWAP,
        say("remote.paging"),
        ("swap_in", "swap_out", "swapped", "major_faults", "trainer_rss", "memory_available", "memory_pressure"),
        _need_less_memory,
        say("remote.paging_refuted"),
    ),
)
