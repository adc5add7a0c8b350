"""Reading from the network, and from swap."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.english.phrases import amount


def fetching() -> str:
    return "Waiting for data from the network"


def fetching_refuted() -> str:
    return (
        "Serve the same samples from local files: if the pace stays the same, the network is not what holds the job up."
    )


def at_the_same_time(*, received: Evidence | None) -> Fix:
    rate = f" They deliver {amount(received)}." if received is not None else ""
    return Fix(
        "Fetch the samples of a batch at the same time",
        f"A reader spends its time waiting for answers, not computing: many can wait at once without more cores.{rate}",
        "def __getitems__(self, indices):  # DataLoader calls it with the whole batch\n"
        "    return list(self._pool.map(self._fetch, indices))  # self._pool = ThreadPoolExecutor(32), made in the "
        "worker",
    )


def local_copy() -> Fix:
    return Fix(
        "Keep a local copy",
        "What is fetched once need not be fetched again in the next epoch.",
        "Write each object to $TMPDIR/cache at its first use and look there first.",
    )


def larger_objects() -> Fix:
    return Fix(
        "Fetch fewer, larger objects over kept connections",
        "Every request waits at least one round trip; a new connection waits for two or three.",
        "Use shards of 100 MB or more, and one session per worker (requests.Session, urllib3.PoolManager).",
    )


def further_ahead() -> Fix:
    return Fix(
        "Fetch further ahead",
        "By default each worker prepares two batches ahead; more hide answers that are late now and then.",
        "DataLoader(..., prefetch_factor=8)",
    )


def paging() -> str:
    return "Paging memory in from swap"


def paging_refuted() -> str:
    return "Watch si in vmstat 1 while the job runs: if it stays 0, the job does not wait for swap."


def fewer_workers(*, workers: int) -> Fix:
    return Fix(
        f"Use fewer loader workers than {workers}, and fewer batches ahead",
        "Every worker holds its own copy of what it touches, and prefetch_factor batches ready.",
        f"DataLoader(..., num_workers={max(1, workers // 2)}, prefetch_factor=1)",
    )


def no_python_objects(*, workers: int) -> Fix:
    return Fix(
        "Keep the dataset out of Python objects",
        "Lists and dicts are copied into each worker page by page, since reading them changes their reference counts."
        if workers
        else "A Python object takes several times the memory of the numbers or letters that it holds.",
        "Hold names, labels and offsets in NumPy arrays or tensors; map large arrays: numpy.load(path, mmap_mode='r').",
    )


def more_memory(*, limit: float | None) -> Fix:
    capped = f" The control group may use {limit / 1e9:.3g} GB." if limit else ""
    return Fix(
        "Give the job more memory",
        f"Memory is short, so pages go to the swap device and back.{capped}",
        "swapon --show; free -h",
    )
