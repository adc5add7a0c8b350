"""Reading from the network, and from swap: data that is farther away than it should be."""

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.finding import REPORTED, finding, freed
from perfdoctor.rules.lookups import setting
from perfdoctor.rules.wording import amount, takes
from perfdoctor.rules.workers import plan_workers, worker_fixes

_LARGER_OBJECTS = Fix(
    "Fetch fewer, larger objects over kept connections",
    "Every request waits at least one round trip; a new connection waits for two or three.",
    "Use shards of 100 MB or more, and one session per worker (requests.Session, urllib3.PoolManager).",
)


_FURTHER_AHEAD = Fix(
    "Fetch further ahead",
    "By default each worker prepares two batches ahead; more hide answers that are late now and then.",
    "DataLoader(..., prefetch_factor=8)",
)


def network_read(case: Case) -> Finding | None:
    """Reads from sockets: object stores, HTTP, databases."""
    cause = "io.network_read"
    if case.share(cause) < REPORTED:
        return None
    plan = plan_workers(case, cause)
    rate = f" They deliver {amount(case, 'received')}." if case.number("received") is not None else ""
    fixes = [
        *worker_fixes(case, cause, plan),
        Fix(
            "Fetch the samples of a batch at the same time",
            "A reader spends its time waiting for answers, not computing: many can wait at once without "
            f"more cores.{rate}",
            "def __getitems__(self, indices):  # DataLoader calls it with the whole batch\n"
            "    return list(self._pool.map(self._fetch, indices))  # self._pool = ThreadPoolExecutor(32), "
            "made in the worker",
        ),
        Fix(
            "Keep a local copy",
            "What is fetched once need not be fetched again in the next epoch.",
            "Write each object to $TMPDIR/cache at its first use and look there first.",
            freed(case.share(cause)),
        ),
        _LARGER_OBJECTS,
    ]
    if (setting(case, "workers") or 0) > 0:
        fixes.append(_FURTHER_AHEAD)
    return finding(
        case,
        cause,
        takes(case, cause, "Waiting for data from the network"),
        ("received", "packets", "retransmits", "worker_busy", "workers_busy", "worker_cores", "exposed_data"),
        fixes,
        "Serve the same samples from local files: if the pace stays the same, the network is not what holds "
        "the job up.",
    )


def swap(case: Case) -> Finding | None:
    """Memory paged in and out."""
    cause = "io.swap"
    if case.share(cause) < REPORTED:
        return None
    workers = int(max((trainer.workers for trainer in case.trainers), default=0))
    limit = setting(case, "memory_limit_bytes")
    capped = f" The control group may use {limit / 1e9:.3g} GB." if limit else ""
    fixes = []
    if workers > 1:
        fixes.append(
            Fix(
                f"Use fewer loader workers than {workers}, and fewer batches ahead",
                "Every worker holds its own copy of what it touches, and prefetch_factor batches ready.",
                f"DataLoader(..., num_workers={max(1, workers // 2)}, prefetch_factor=1)",
            )
        )
    fixes += [
        Fix(
            "Keep the dataset out of Python objects",
            "Lists and dicts are copied into each worker page by page, since reading them changes their "
            "reference counts."
            if workers
            else "A Python object takes several times the memory of the numbers or letters that it holds.",
            "Hold names, labels and offsets in NumPy arrays or tensors; map large arrays: numpy.load(path, "
            "mmap_mode='r').",
        ),
        Fix(
            "Give the job more memory",
            f"Memory is short, so pages go to the swap device and back.{capped}",
            "swapon --show; free -h",
        ),
    ]
    return finding(
        case,
        cause,
        takes(case, cause, "Paging memory in from swap"),
        ("swap_in", "swap_out", "swapped", "major_faults", "trainer_rss", "memory_available", "memory_pressure"),
        fixes,
        "Watch si in vmstat 1 while the job runs: if it stays 0, the job does not wait for swap.",
    )


REMOTE_RULES = (network_read, swap)
