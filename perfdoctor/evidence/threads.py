"""Evidence from the threads: who ran, who queued for a core, and whether the loader workers had work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfdoctor.clock import NS_PER_S
from perfdoctor.evidence.readings import SHORTEST_S, Numbers, put
from perfdoctor.samples import ProcessGone, ProcessSeen, ThreadSample, ThreadSeen

if TYPE_CHECKING:
    import pandas as pd

    from perfdoctor.recording import Recording

Roles = Sequence[tuple[int, Sequence[int]]]
"""Per trainer: its process id, and those of its loader workers."""

# A worker without work polls the pipe of its index queue (multiprocessing.Queue.get with a
# timeout), or reads it.
_IDLE_CALLS = frozenset(("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "read"))
_IDLE_TARGETS = frozenset(("pipe", ""))

# With fewer looks than this at a worker, its busy share is not worth stating (standard error above 0.11).
_FEWEST_LOOKS = 20


def measure_threads(recording: Recording, trainers: Roles) -> Numbers:
    """Numbers from the samples of threads and the comings and goings of processes."""
    threads = _threads(recording)
    numbers: Numbers = {}
    _measure_trainers(numbers, threads, [pid for pid, _ in trainers])
    _measure_workers(numbers, threads, trainers)
    _measure_starts(numbers, recording, trainers)
    _measure_runnable(numbers, threads)
    return numbers


def _threads(recording: Recording) -> pd.DataFrame:
    """All samples of living threads, with the ``pid`` each belongs to."""
    samples = recording.table(ThreadSample)
    owners = recording.table(ThreadSeen).drop_duplicates("tid", keep="last")
    living: pd.DataFrame = samples[~samples["state"].isin(["X", "Z"])].merge(
        owners[["tid", "pid"]], on="tid", how="left"
    )
    return living


def _measure_trainers(numbers: Numbers, threads: pd.DataFrame, pids: Sequence[int]) -> None:
    mains = [_main(threads, pid) for pid in pids]

    def put_mean(name: str, column: str, unit: float = 1) -> None:
        rates = [rate for main in mains if (rate := _rate(main, column)) is not None]
        mean = _mean(rates)
        put(numbers, name, None if mean is None else mean / unit)

    put_mean("trainer_running", "run_ns", NS_PER_S)
    put_mean("trainer_run_delay", "delay_ns", NS_PER_S)
    put_mean("trainer_switches", "voluntary")
    put_mean("trainer_major_faults", "major_faults")
    cores = _cores(threads, pids)
    put(numbers, "trainer_cores", None if cores is None else cores / len(pids))


def _measure_workers(numbers: Numbers, threads: pd.DataFrame, trainers: Roles) -> None:
    shares, busy = [], []
    for pid, workers in trainers:
        looks = threads[threads["tid"].isin(list(workers))]
        looks = looks[(looks["state"] != "S") | looks["syscall"].notna()]
        if len(looks) < _FEWEST_LOOKS:
            continue
        idle = (
            looks["syscall"].isin(_IDLE_CALLS) & looks["target"].isin(_IDLE_TARGETS) & (looks["state"] == "S")
        )
        shares.append(1 - float(idle.mean()))
        alive = _alive_at_a_time(looks)
        if alive is not None:
            busy.append(shares[-1] * alive)
            put(numbers, f"workers_busy.{pid}", busy[-1], f" (process {pid})")
    put(numbers, "worker_busy", _mean(shares))
    put(numbers, "workers_busy", _mean(busy))
    pids = [worker for _, workers in trainers for worker in workers]
    if pids:
        put(numbers, "worker_cores", _cores(threads, pids))
        delay = _mean([rate for pid in pids if (rate := _rate(_main(threads, pid), "delay_ns")) is not None])
        put(numbers, "worker_run_delay", None if delay is None else delay / NS_PER_S)


def _alive_at_a_time(looks: pd.DataFrame) -> float | None:
    """Mean number of workers over the time in which there were any: the sum of their lives by its length."""
    spans = looks.groupby("tid")["time_ns"].agg(["min", "max"])
    whole = int(spans["max"].max() - spans["min"].min())
    return float((spans["max"] - spans["min"]).sum()) / whole if whole > SHORTEST_S * NS_PER_S else None


def _measure_starts(numbers: Numbers, recording: Recording, trainers: Roles) -> None:
    """How often workers are started anew. Those found at the first look were not started while we watched."""
    seen = recording.table(ProcessSeen).drop_duplicates("pid", keep="last")
    gone = recording.table(ProcessGone)
    workers = {worker for _, pids in trainers for worker in pids}
    watched_s = (recording.end_ns - recording.start_ns) / NS_PER_S
    known = seen[seen["pid"].isin(workers)]
    if known.empty or watched_s < SHORTEST_S:
        return
    began = known[known["started_ns"] >= recording.start_ns]
    put(numbers, "worker_starts", 60 * len(began) / watched_s)
    lives = began.merge(gone, on="pid", suffixes=("", "_gone"))
    if not lives.empty:
        life = float((lives["time_ns_gone"] - lives["started_ns"]).median()) / NS_PER_S
        put(numbers, "worker_life", life)


def _measure_runnable(numbers: Numbers, threads: pd.DataFrame) -> None:
    """Threads on a core or queueing for one, on average: all run time and run delay by the time watched."""
    if threads.empty:
        return
    watched = int(threads["time_ns"].max() - threads["time_ns"].min())
    if watched < SHORTEST_S * NS_PER_S:
        return
    by_thread = threads.groupby("tid")[["run_ns", "delay_ns"]]
    grown = (by_thread.max() - by_thread.min()).sum()
    put(numbers, "runnable_threads", float(grown["run_ns"] + grown["delay_ns"]) / watched)


def _main(threads: pd.DataFrame, pid: int) -> pd.DataFrame:
    main: pd.DataFrame = threads[threads["tid"] == pid]
    return main


def _rate(samples: pd.DataFrame, column: str) -> float | None:
    """Growth of a counter per second over one thread's samples; None where it was not read twice."""
    known = samples[["time_ns", column]].dropna()
    if len(known) < 2:
        return None
    elapsed = int(known["time_ns"].iloc[-1] - known["time_ns"].iloc[0])
    if elapsed < SHORTEST_S * NS_PER_S:
        return None
    return float(known[column].iloc[-1] - known[column].iloc[0]) * NS_PER_S / elapsed


def _cores(threads: pd.DataFrame, pids: Sequence[int]) -> float | None:
    """Cores kept busy by all threads of some processes, over the time in which any of them was looked at."""
    mine = threads[threads["pid"].isin(list(pids)) | threads["tid"].isin(list(pids))]
    if mine.empty:
        return None
    watched = int(mine["time_ns"].max() - mine["time_ns"].min())
    if watched < SHORTEST_S * NS_PER_S:
        return None
    run = mine.groupby("tid")["run_ns"]
    return float((run.max() - run.min()).sum()) / watched


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
