"""What can be tried without touching the user's files: what each change can help against, and how it is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfdoctor import causes
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import environment, thresholds
from perfdoctor.probes.treated.changes import FEWER, MORE
from perfdoctor.treat.run import RunChange
from perfdoctor.treat.situation import Situation, Treatment, shared_out

_INPUT = (causes.INPUT_PREPROCESSING, causes.STORAGE_READ, causes.NETWORK_READ, causes.LOCK_CONTENTION)
_DISPATCH = (causes.PYTHON_OVERHEAD, causes.KERNEL_LAUNCH)
_CPU_ARITHMETIC = (causes.MODEL_COMPUTE,)
_GPU_ARITHMETIC = (causes.GPU_COMPUTE, causes.MEMORY_BANDWIDTH, causes.LOW_OCCUPANCY, causes.NO_TENSOR_CORES)
_CORES = (causes.CONTENTION, causes.THROTTLED)


def choose(situation: Situation) -> list[Treatment]:
    """The treatments whose causes take enough time to be worth a trial: first what is advised, by what it promises."""
    found = [treatment for family in FAMILIES for treatment in family(situation)]
    worth = [one for one in found if situation.share(one.causes) >= thresholds.WORTH_A_TRIAL]
    return sorted(worth, key=lambda one: (-(situation.predicted(one) or 0.0), -_promise(situation, one)))


# A bound is worth knowing, and less than a change that can be kept; what helps against much often helps a little.
_BOUND_OR_GENERAL = 0.5


def _promise(situation: Situation, treatment: Treatment) -> float:
    """What its causes take; the model's arithmetic, which every job has, counts only where there is nothing else."""
    healthy = [cause for cause in treatment.causes if causes.CAUSES[cause].healthy]
    others = [cause for cause in treatment.causes if cause not in healthy]
    promise = situation.share(others) + thresholds.ARITHMETIC_COUNTS * situation.share(healthy)
    return promise * (_BOUND_OR_GENERAL if treatment.bound or treatment.general else 1.0)


def _more_workers(s: Situation) -> Iterator[Treatment]:
    loaders = [fact for fact in s.all("loader") if not fact["iterable"]]
    if not loaders:
        return
    advised = s.advised("workers.more")
    useful, with_threads = advised.get("useful"), advised.get("threads")
    counts = {int(useful)} if useful else {max(1, s.cores_each - 1)}
    for count in sorted((counts | {s.cores_each}) - {s.workers}):
        if count <= s.workers:
            continue
        loader = {"num_workers": count, "persistent_workers": True}
        keywords = {"loader": {"num_workers": str(count), "persistent_workers": "True"}}
        advice = advise("treat.more_workers", workers=count, now=s.workers)
        fixes = ("workers.more",) if count == useful else ()
        threads = max(1, s.cores_each - count)
        if threads < s.threads:
            both = advise("treat.workers_and_threads", workers=count, now=s.workers, threads=threads)
            change = _with_threads(threads, {"loader": loader, "workers": MORE})
            name = f"num_workers={count}, threads={threads}"
            keywords_too = {**keywords, **_thread_keywords(threads)}
            yield Treatment(name, both, _INPUT, change, keywords=keywords_too, fixes=fixes if with_threads else ())
        change = RunChange({"loader": loader, "workers": MORE})
        yield Treatment(
            f"num_workers={count}", advice, _INPUT, change, keywords=keywords, fixes=() if with_threads else fixes
        )


def _fewer_workers(s: Situation) -> Iterator[Treatment]:
    against = (causes.CONTENTION, causes.THROTTLED, causes.DATA_TRANSFER, causes.WORKER_STARTUP, causes.SWAP)
    if any(fact["iterable"] for fact in s.all("loader")):
        return
    fix = "cores.fewer_workers"
    advised = s.advised(fix).get("fitting")
    for count in sorted({0, advised or max(1, min(s.workers // 2, s.cores_each - 1))}):
        if count < s.workers:
            advice = advise("treat.fewer_workers", workers=count, now=s.workers)
            keywords = {"loader": {"num_workers": str(count)}}
            if not count:  # then these must be as they are without workers
                keywords["loader"] |= {"persistent_workers": "False", "prefetch_factor": "None"}
            change = RunChange({"loader": {"num_workers": count}, "workers": FEWER})
            fixes = ("input.without_workers",) if not count else (fix,) if count == advised else ()
            yield Treatment(f"num_workers={count}", advice, against, change, keywords=keywords, fixes=fixes)


def _workers_otherwise(s: Situation) -> Iterator[Treatment]:
    if not s.workers:
        return
    if not any(fact["values"].get("persistent_workers") for fact in s.all("loader")):
        kept = _of_loader("persistent_workers", True, advise("treat.keep_workers"), (causes.WORKER_STARTUP,))
        yield replace(kept, fixes=("input.keep_workers",))
    yield from _started_otherwise(s)
    yield _of_loader("prefetch_factor", 8, advise("treat.prefetch_more"), (*_INPUT, causes.DATA_TRANSFER), exact=True)
    yield Treatment(
        "sharing_strategy=file_system",
        advise("treat.share_by_name"),
        (causes.DATA_TRANSFER,),
        RunChange({"sharing": "file_system"}),
        exact=True,
    )


def _started_otherwise(s: Situation) -> Iterator[Treatment]:
    """Another start method of workers.

    A fork server imports the script, which must not train then. A fork of a process that uses a GPU is not safe.
    Spawning does what a fork server does, and imports everything again each time.
    """
    against = (causes.WORKER_STARTUP,)
    loaders = [fact for fact in s.all("loader") if fact["values"].get("num_workers")]
    methods = {fact["method"] for fact in loaders}
    if "forkserver" not in methods and all(fact["importable"] for fact in loaders):
        change = RunChange({"loader": {"multiprocessing_context": "forkserver"}, "preload": ["__main__", "torch"]})
        fixes = ("input.fork_server",)
        yield Treatment("forkserver", advise("treat.fork_server"), against, change, fixes=fixes)
    if "fork" not in methods and not s.on_gpu:
        fork = _of_loader("multiprocessing_context", "fork", advise("treat.fork"), against)
        yield replace(fork, keywords={"loader": {"multiprocessing_context": '"fork"'}})


def _pinned(s: Situation) -> Iterator[Treatment]:
    if s.on_gpu and s.all("loader") and not any(fact["values"].get("pin_memory") for fact in s.all("loader")):
        pinned = _of_loader("pin_memory", True, advise("treat.pin"), (causes.HOST_TRANSFER,), exact=True)
        yield replace(pinned, fixes=("gpu_idle.pin_batches",))


def _of_loader(
    name: str, value: bool | int | str, advice: Advice, against: tuple[str, ...], *, exact: bool = False
) -> Treatment:
    change = RunChange({"loader": {name: value}})
    return Treatment(f"{name}={value}", advice, against, change, exact=exact, keywords={"loader": {name: str(value)}})


def _kept_batches(s: Situation) -> Iterator[Treatment]:
    if s.all("loader"):
        change = RunChange({"cached_batches": True})
        against = (*_INPUT, causes.DATA_TRANSFER, causes.WORKER_STARTUP)
        yield Treatment("cached batches", advise("treat.cached_batches"), against, change, bound=True)


def _staged(s: Situation) -> Iterator[Treatment]:
    if s.waited:
        change = RunChange({"staged": list(s.waited)})
        fixes = ("io.copy_to_local", "io.keep_in_memory")
        advice = advise("treat.staged", places=s.waited)
        yield Treatment("staged in memory", advice, (causes.STORAGE_READ,), change, exact=True, fixes=fixes)


# Advice on the threads of the arithmetic, and which of its values says how many.
_ADVISED_THREADS = {
    "cores.fewer_threads": "fitting",
    "cores.fewer_threads_beside": "fitting",
    "arithmetic.more_threads": "more",
}


def _threads(s: Situation) -> Iterator[Treatment]:
    against = _CORES if s.on_gpu else (*_CORES, causes.PYTHON_OVERHEAD, *_CPU_ARITHMETIC, *_INPUT)
    advised = {fix: s.advised(fix).get(value) for fix, value in _ADVISED_THREADS.items()}
    for count in sorted({1, s.cores_each, *filter(None, advised.values())} - {s.threads}):
        advice = advise("treat.threads", threads=count, now=s.threads)
        fixes = tuple(fix for fix, threads in advised.items() if threads == count)
        change, keywords = _with_threads(count), _thread_keywords(count)
        yield Treatment(f"threads={count}", advice, against, change, keywords=keywords, fixes=fixes)


def _with_threads(count: int, settings: Mapping[str, Any] | None = None) -> RunChange:
    names = (environment.POOL_THREADS, *environment.POOL_THREADS_TOO)
    return RunChange({"threads": count, **(settings or {})}, dict.fromkeys(names, str(count)))


def _thread_keywords(count: int) -> dict[str, dict[str, str]]:
    return {"threads": {"": str(count)}}


def _bound(s: Situation) -> Iterator[Treatment]:
    """Trainers and loader workers on cores of their own, with no more compute threads than these are."""
    each = len(s.own_cores) // s.trainers
    if each < (2 if s.workers else 1) or (s.trainers == 1 and not s.workers):
        return
    shares = shared_out(s.own_cores, s.trainers, s.workers)
    threads = len(shares[0][0])
    fewer = threads < s.threads
    settings = {"affinity": shares}
    change = _with_threads(threads, settings) if fewer else RunChange(settings)
    values = tuple((tuple(own), tuple(others)) for own, others in shares)
    yield Treatment(
        f"affinity, threads={threads}" if fewer else "affinity",
        advise("treat.bound", split=values, threads=threads if fewer else None),
        (causes.CONTENTION, causes.INPUT_PREPROCESSING),
        change,
        exact=not fewer,
    )


def _waiting_threads(s: Situation) -> Iterator[Treatment]:
    if environment.POOL_WAITING not in s.variables and s.threads > 1:
        change = RunChange(variables={environment.POOL_WAITING: "PASSIVE"})
        yield Treatment(
            f"{environment.POOL_WAITING}=PASSIVE", advise("treat.sleeping_threads"), _CORES, change, exact=True
        )


def _garbage(s: Situation) -> Iterator[Treatment]:
    against = (causes.GARBAGE_COLLECTION,)
    if places := [fact for fact in s.all("collect") if "file" in fact]:
        advice = advise("treat.collect_rarely", line=f"{places[0]['file']}:{places[0]['line']}")
        change, same = RunChange({"collect_every": 100}), ("interpreter.no_call", "interpreter.collected_by_hand")
        yield Treatment("gc.collect() rarely", advice, against, change, exact=True, fixes=same)
    change = RunChange({"gc": [50_000, 20, 20]})
    fixes = ("interpreter.collect_rarely",)
    yield Treatment("gc.freeze()", advise("treat.freeze"), against, change, exact=True, fixes=fixes)


def _allocators(s: Situation) -> Iterator[Treatment]:
    against = _INPUT if s.on_gpu else (*_INPUT, causes.PYTHON_OVERHEAD, *_CPU_ARITHMETIC)
    if not s.on_gpu:
        kept, huge = environment.KEEP_FREED_MEMORY, environment.HUGE_PAGES
        advice = advise("treat.keep_memory", variables=tuple(kept.items()))
        change, same = RunChange(variables=kept), ("arithmetic.keep_memory",)
        yield Treatment("glibc keeps freed memory", advice, against, change, general=True, fixes=same)
        advice = advise("treat.huge_pages", variables=tuple(huge.items()))
        yield Treatment("huge pages", advice, _CPU_ARITHMETIC, RunChange(variables=huge))
    for name, file in _found_allocators():
        preload = " ".join(filter(None, (str(file), s.variables.get("LD_PRELOAD"))))
        advice = advise("treat.allocator", name=name, preload=preload)
        yield Treatment(name, advice, against, RunChange(variables={"LD_PRELOAD": preload}), general=True)


def _found_allocators() -> Iterator[tuple[str, Path]]:
    """Allocators that are installed, and where."""
    for name, patterns in environment.ALLOCATORS.items():
        files = [file for folder in environment.SYSTEM_FOLDERS for one in patterns for file in sorted(folder.glob(one))]
        if files:
            yield name, files[0]


def _growing_segments(s: Situation) -> Iterator[Treatment]:
    if not any(name in s.variables for name in environment.ALLOCATOR):
        variables = dict.fromkeys(environment.ALLOCATOR, "expandable_segments:True")
        change = RunChange(variables=variables)
        advice, fixes = advise("treat.growing_segments"), ("gpu_idle.growing_segments",)
        yield Treatment("expandable_segments", advice, (causes.MEMORY_PRESSURE,), change, exact=True, fixes=fixes)


def _optimizers(s: Situation) -> Iterator[Treatment]:
    against = (*_DISPATCH, causes.MEMORY_BANDWIDTH, *_CPU_ARITHMETIC)
    options = {option for fact in s.all("optimizer") for option in fact["options"]}
    chosen = any(value for fact in s.all("optimizer") for value in fact["values"].values())
    # On a GPU foreach is what torch chooses by itself.
    for option in ("fused",) if s.on_gpu else ("fused", "foreach"):
        if option in options and not chosen and (s.can_fuse or option != "fused"):
            change, keywords = RunChange({"optimizer": {option: True}}), {"optimizer": {option: "True"}}
            advice = advise("treat.optimizer", option=option)
            fixes = ("optimizer.fused",) if option == "fused" else ()
            yield Treatment(f"{option}=True", advice, against, change, keywords=keywords, fixes=fixes)


def _models(s: Situation) -> Iterator[Treatment]:
    arithmetic = _GPU_ARITHMETIC if s.on_gpu else _CPU_ARITHMETIC
    if any(fact["kernels"] for fact in s.all("optimizer")):
        change = RunChange({"modules": "channels_last"})
        yield Treatment("channels_last", advise("treat.channels_last"), arithmetic, change)
    if s.can_compile and s.all("optimizer") and not any(name in s.variables for name in environment.NO_COMPILING):
        change = RunChange({"modules": "compile"})
        yield Treatment("compile", advise("treat.compile"), (*_DISPATCH, *arithmetic), change, slow_start=True)


def _gpu_switches(s: Situation) -> Iterator[Treatment]:
    if not s.on_gpu:
        return
    if any(fact["kernels"] for fact in s.all("optimizer")):
        change = RunChange({"flags": {"backends.cudnn.benchmark": True}})
        yield Treatment("cudnn.benchmark", advise("treat.cudnn_benchmark"), _GPU_ARITHMETIC, change)
    change = RunChange({"matmul_precision": "high", "flags": {"backends.cudnn.allow_tf32": True}})
    against = (causes.NO_TENSOR_CORES, causes.GPU_COMPUTE)
    yield Treatment("TF32", advise("treat.tf32"), against, change, fixes=("gpu.tf32", "gpu.allow_tf32_again"))


def _ranks(s: Situation) -> Iterator[Treatment]:
    if s.all("ddp"):
        change = RunChange({"ddp": {"bucket_cap_mb": 100, "gradient_as_bucket_view": True}})
        keywords = {"ddp": {"bucket_cap_mb": "100", "gradient_as_bucket_view": "True"}}
        advice = advise("treat.buckets")
        yield Treatment("bucket_cap_mb=100", advice, (causes.LATENCY, causes.BANDWIDTH), change, keywords=keywords)


def _accumulation(s: Situation) -> Iterator[Treatment]:
    """Gradients that are accumulated, and exchanged in each of the passes."""
    steps = s.all("accumulation")
    passes = max((fact["passes"] for fact in steps), default=0)
    if passes > 1 and all(fact["exchanged"] == fact["passes"] and fact["models"] == 1 for fact in steps):
        advice = advise("treat.no_sync", passes=passes)
        yield Treatment("no_sync", advice, (causes.LATENCY, causes.BANDWIDTH), RunChange({"no_sync": passes}))


def _debugging(s: Situation) -> Iterator[Treatment]:
    against = (*_DISPATCH, causes.SYNCHRONIZATION, causes.LATENCY)
    blocking = environment.switched_on(s.variables.get(environment.LAUNCH_BLOCKING))
    names = [environment.LAUNCH_BLOCKING] if blocking else []
    for name in (*names, *environment.debugging(s.variables.get)):
        change = RunChange(variables={name: None})
        yield Treatment(f"without {name}", advise("treat.unset", name=name), against, change, exact=True)
    if s.all("anomaly"):
        change = RunChange({"no_anomaly_detection": True})
        advice, fixes = advise("treat.no_anomaly_detection"), ("left_on.no_anomaly_detection",)
        yield Treatment("no anomaly detection", advice, (causes.PYTHON_OVERHEAD,), change, exact=True, fixes=fixes)


def _instructions(s: Situation) -> Iterator[Treatment]:
    for name in environment.forbidding_instructions(s.variables.get):
        change = RunChange(variables={name: None})
        advice, fixes = advise("treat.all_instructions", name=name), ("arithmetic.all_instructions",)
        yield Treatment(f"without {name}", advice, (causes.MODEL_COMPUTE,), change, fixes=fixes)


def _saves(s: Situation) -> Iterator[Treatment]:
    if s.all("save"):
        change = RunChange({"no_saves": True})
        yield Treatment(
            "no checkpoints", advise("treat.no_saves"), (causes.CHECKPOINT_WRITE,), change, exact=True, bound=True
        )


FAMILIES: tuple[Callable[[Situation], Iterator[Treatment]], ...] = (
    *(_more_workers, _fewer_workers, _workers_otherwise, _pinned, _kept_batches, _staged),
    *(_threads, _bound, _waiting_threads, _garbage, _allocators, _growing_segments),
    *(_optimizers, _models, _gpu_switches, _ranks, _accumulation, _debugging, _instructions, _saves),
)


def together(treatments: Sequence[Treatment]) -> RunChange | None:
    """Several treatments as one change; None where two of them want different things of the same setting."""
    settings: dict[str, Any] = {}
    variables: dict[str, str | None] = {}
    for one in treatments:
        for name, value in one.change.variables.items():
            if variables.setdefault(name, value) != value:
                return None
        for kind, value in one.change.settings.items():
            if kind not in settings or not isinstance(value, Mapping):
                if settings.setdefault(kind, value) != value:
                    return None
                continue
            known = settings[kind]
            if any(known.get(name, wanted) != wanted for name, wanted in value.items()):
                return None
            settings[kind] = {**known, **value}
    return RunChange(settings, variables)
