"""The job's start: what is done once."""

from perfdoctor.diagnosis import Fix

_CACHES = "export TORCHINDUCTOR_CACHE_DIR=/var/cache/inductor TRITON_CACHE_DIR=/var/cache/triton\n"


def done_once() -> str:
    return "What is done once, at the job's start (compiling, loading kernels, trying algorithms, first allocations),"


def done_once_refuted() -> str:
    return "Trace steps after the first hundred: if the GPU waits for the same calls there, they are not done once."


def not_projected(*, fills: bool) -> str:
    if fills:
        return "So this is a trace of the start: it says nothing about the steps that follow, or how fast they can be."
    return "Later steps do none of it, so no speed-up of the training is claimed for it."


def trace_later() -> Fix:
    return Fix(
        "Trace later steps",
        "What takes the time of the training shows once everything is loaded, compiled and allocated.",
        "torch.profiler.profile(schedule=torch.profiler.schedule(wait=10, warmup=3, active=5), ...)\n"
        "prof.step()  # at the end of each step of the loop",
    )


def keep_caches(*, compiling: bool) -> Fix:
    return Fix(
        "Where jobs start often, keep what is made at the start",
        "Caches that outlive the job spare compiling; loading all kernels at once takes the pauses out of the first "
        "steps.",
        (_CACHES if compiling else "") + "export CUDA_MODULE_LOADING=EAGER  # loads before the first step, not in it",
    )
