"""What was left on for debugging and makes every call dearer, and variables that are to be taken away."""

from collections.abc import Iterator

from perfdoctor.causes import PYTHON_OVERHEAD
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import environment, thresholds
from perfdoctor.knowledge.libraries import FORMAT_TRACEBACKS
from perfdoctor.messages import Message, say
from perfdoctor.rules.case import Case


def unset(case: Case, name: str, why: Message) -> list[Advice]:
    """The fix that takes a harmful environment variable away, if it is switched on."""
    if not case.switched_on(name):
        return []
    return [advise("finding.unset", name=name, value=case.variable(name), why=why)]


def stop_debugging(case: Case) -> Iterator[Advice]:
    """Takes away what is for debugging and slows down operators, and all that Python does."""
    if detects_anomalies(case):
        yield advise("left_on.no_anomaly_detection")
    yield from stop_watching(case)


def stop_watching(case: Case) -> Iterator[Advice]:
    """Takes away what slows down all that Python does, whatever that is for."""
    profiling = case.mean_of("own_profiling")
    if profiling >= thresholds.REPORTED_SHARE:
        yield advise("left_on.record_few_steps", share=profiling)
    stopped = case.number("stopped") or 0.0
    if stopped >= thresholds.REPORTED_SHARE:
        yield advise("left_on.stop_tracer", tracer=str(case.settings["stopped_by"]), share=stopped)
    tracing = case.number("tracing") or 0.0
    if tracing >= thresholds.REPORTED_SHARE:
        yield advise("left_on.stop_tracing", line=str(case.settings["traced_by"]), share=tracing)
    of_memory = case.of_running("tracing_memory")
    if of_memory >= thresholds.REPORTED_SHARE and not case.switched_on("PYTHONTRACEMALLOC"):
        yield advise("left_on.stop_tracing_memory", share=of_memory)
    if watcher := case.settings.get("watched_by"):
        yield advise("left_on.stop_watching", watcher=watcher)
    for name in environment.debugging(case.variable):
        yield from unset(case, name, say("left_on.debugging", name=name))


def detects_anomalies(case: Case) -> bool:
    """Whether autograd notes down at each operator where it was called, to name it if a gradient has a NaN."""
    below = case.below.get(PYTHON_OVERHEAD, {})
    return sum(below.get(package, 0.0) for package in FORMAT_TRACEBACKS) >= thresholds.FORMATTING_TRACEBACKS
