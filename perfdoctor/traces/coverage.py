"""What a trace does not show: when it does not suffice for a verdict, and what a reader of any verdict should know."""

from __future__ import annotations

from perfdoctor.causes import KERNEL_LAUNCH, MODEL_COMPUTE, PYTHON_OVERHEAD, UNOBSERVED_RANK
from perfdoctor.diagnosis import NotExamined
from perfdoctor.knowledge import profiler, thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.traces.account import RankAccount
from perfdoctor.traces.host import HostActivity
from perfdoctor.traces.intervals import Intervals
from perfdoctor.traces.model import Trace
from perfdoctor.traces.programs import computes_on_cpu, waits_for_unseen

_STEADY = (
    "profile later steps: torch.profiler.profile(schedule=torch.profiler.schedule(wait=10, warmup=3, active=5), ...) "
    "and prof.step() in the loop"
)
_WITH_DEVICE = "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
# Reported of WSL (pytorch/kineto#762, pytorch/pytorch#99615), and where the driver keeps users from profiling.
_WITH_KERNELS = (
    "let the driver show it to the profiler (NVIDIA: ERR_NVGPUCTRPERM; in WSL a recent driver of Windows), "
    "or perfdoctor attach PID, which needs no trace"
)


def why_silent(account: RankAccount) -> str:
    """Why this trace does not suffice for a verdict; "" if it does."""
    trace = account.trace
    if not len(trace.device):
        unknown = unknown_device(trace)
        if unknown and (trace.devices or any(name.endswith("_runtime") for name in trace.unknown_categories)):
            return f"The trace is of a device that perfdoctor does not know ({unknown}); what it did is not known."
        shown = trace.devices or len(trace.calls) or trace.matching(profiler.ON_GPU, trace.host.name).any()
        known = computes_on_cpu(account) or account.shares.get(UNOBSERVED_RANK, 0.0) >= thresholds.MOSTLY
        if shown and not known and _launches_unseen(trace):
            return "The trace holds launches of kernels, and none of the kernels: what the GPU did was not recorded."
        if shown and not known:
            return "The trace holds nothing that a GPU did, although there is one: record it with its GPU activity."
        if waits_for_unseen(account):
            return "The host waits for a device to read single numbers, and the trace holds nothing that a device did."
    if not len(trace.device) + len(trace.host) + len(trace.calls):
        return "The trace holds no event of a kind that torch.profiler writes: older profilers name none."
    if account.window.length < thresholds.SHORTEST_TRACE_NS:
        return "The trace is shorter than a millisecond."
    return ""


def unknown_device(trace: Trace) -> str:
    """Names the strange categories that a device's work seems to be in; "" if there are none."""
    return ", ".join(sorted(trace.unknown_categories))


def _launches_unseen(trace: Trace) -> bool:
    """Whether kernels were launched, and none was recorded though the profiler was to do so."""
    return not len(trace.device) and bool(trace.matching(profiler.KERNEL_LAUNCH, trace.calls.name).any())


def missing_in_trace(account: RankAccount) -> list[NotExamined]:
    """What one trace does not show."""
    trace = account.trace
    found = [NotExamined("trace", f"{trace.source}: {note}", "record it again") for note in trace.notes]
    if unknown := unknown_device(trace):
        found.append(
            NotExamined("trace", f"Events of unknown kinds are left out: {unknown}.", "an issue with the trace")
        )
    if not len(trace.device):
        if trace.devices and computes_on_cpu(account):
            why = "There is a GPU, and most of the time goes into operators that compute on the CPU only."
            found.append(NotExamined("trace", why, "run it on the GPU: model.to('cuda'), and its inputs as well"))
        elif _launches_unseen(trace):
            found.append(
                NotExamined("trace", "What the GPU did is not in the trace, only its launches.", _WITH_KERNELS)
            )
        else:
            enable = f"where the job uses one: {_WITH_DEVICE}"
            found.append(NotExamined("trace", "No GPU activity is in the trace.", enable))
    if not account.window.steps:
        found += _missing_without_steps(account)
    if len(trace.device) and len(trace.host) and len(trace.calls) and not account.host.sees_operators:
        why = "Only a sample of the events is in the trace, so why the GPU is idle is known for a part of the time."
        enable = "record all events: trace fewer steps instead"
        if not (trace.calls.correlation > 0).any():
            why = "Calls have no numbers in the trace, so why the GPU is idle is known for a part of the time."
            enable = "record it with a recent PyTorch"
        found.append(NotExamined("trace", why, enable))
    if len(trace.device) and not len(trace.host):
        found.append(
            NotExamined(
                "trace", "The host's operators are not in the trace, so idle time has few reasons.", _WITH_DEVICE
            )
        )
    return found


def _missing_without_steps(account: RankAccount) -> list[NotExamined]:
    """What it means that nothing marks the steps: on a GPU what the host did before it does not count."""
    if not account.devices:
        why = "The trace marks no steps, so all of it counts, start and end included."
        return [NotExamined("trace", why, _STEADY)]
    why = "The trace marks no steps, so all that its GPUs do counts, from their first event to their last."
    found = [NotExamined("trace", why, _STEADY)]
    window, recorded = account.window, account.host.recorded
    before = Intervals.one(min(recorded.start.min(initial=window.start), window.start), window.start)
    if before.total > window.length:
        why = f"Of the {before.total / NS_PER_S:.3g} s before the first event of a GPU nothing counts."
        fetching = (before & account.host.activity(account.host.main)[HostActivity.LOADING]).total
        if fetching >= thresholds.REPORTED_SHARE * before.total:
            why += f" In {fetching / NS_PER_S:.3g} s of them the main thread waits for a batch."
        found.append(NotExamined("trace", why, _STEADY))
    return found


def missing_steps(pid: int) -> NotExamined:
    """That a trace shows no whole step of a process's training loop."""
    why = (
        f"The trace of process {pid} holds no whole step: neither a loader is asked for batches nor does an optimizer "
        "of PyTorch's step, nor a backward pass end, twice."
    )
    return NotExamined("profile", why, "steps that take less than the trace's 5 s, or marks: with diagnose()")


def missing_for_cause(cause: str | None, *, loading: bool) -> list[NotExamined]:
    """What traces cannot say about a cause.

    Args:
        cause: the verdict's.
        loading: whether the trainer fetched batches from a loader with workers.
    """
    found = []
    if cause in (KERNEL_LAUNCH, PYTHON_OVERHEAD):
        why = (
            "Recording makes each launch itself slower, which a trace cannot tell apart, so without a profiler this "
            "cause is smaller. A trace does not show whether the launching thread lacked a core either."
        )
        return [NotExamined("trace", why, "perfdoctor attach PID, which does not slow the job down")]
    if cause == MODEL_COMPUTE:
        why = "A trace does not show whether threads lack a core meanwhile: on a CPU that looks like arithmetic."
        found.append(NotExamined("trace", why, "perfdoctor attach PID, which sees who has the cores"))
    if loading:
        why = "A trace does not show what loader workers do while the trainer waits for them."
        found.append(NotExamined("trace", why, "perfdoctor attach PID, which looks into workers"))
    return found


def missing_outside(rank: int | None, annotation: str) -> NotExamined:
    """What is not known of a host that is outside of PyTorch.

    Args:
        rank: its number; None in a job of one rank.
        annotation: around most of that time; "" if there is none.
    """
    whose = "the main thread" if rank is None else f"the main thread of rank {rank}"
    why = f"The trace does not show what {whose} does outside of PyTorch: it computes, reads, sleeps, or waits."
    if annotation:
        why += f" It is within {annotation!r} then."
    return NotExamined("trace", why, "profile with_stack=True, or perfdoctor attach PID")


def missing_of_late(rank: int, annotation: str) -> NotExamined:
    """What is not known of a rank that others wait for, while its trace shows nothing.

    Args:
        rank: its number.
        annotation: around most of that time; "" if there is none.
    """
    why = f"The trace does not show what rank {rank} does while the others wait for it."
    if annotation:
        why += f" Its main thread is within {annotation!r} then, in no operator, call or frame that was recorded."
    return NotExamined("trace", why, f"profile rank {rank} with_stack=True, or perfdoctor attach its PID")


def missing_for_most(*, stacks: bool) -> NotExamined:
    """That the trace shows nothing for much of the time.

    Args:
        stacks: whether it was recorded with Python stacks already.
    """
    why = "For much of the time the trace shows nothing that any thread does: no operator, call or loader."
    return NotExamined(
        "trace", why, "perfdoctor attach PID" if stacks else "profile it with_stack=True, or perfdoctor attach PID"
    )
