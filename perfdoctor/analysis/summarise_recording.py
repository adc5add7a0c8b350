"""From the recording of one host to its summary."""

from __future__ import annotations

from perfdoctor.analysis.coverage import not_examined, why_no_verdict
from perfdoctor.analysis.from_recording import step_summaries
from perfdoctor.analysis.host_summary import HostSummary
from perfdoctor.analysis.profiled import account_for
from perfdoctor.analysis.recorded_case import gather_case
from perfdoctor.attribution.account import Account
from perfdoctor.diagnosis import TRACED
from perfdoctor.knowledge.launchers import MEETING, meets_here, run_of
from perfdoctor.recording.gc_pause import gc_paused
from perfdoctor.recording.reader import Recording
from perfdoctor.stuck.follow import find_still
from perfdoctor.timeline.amounts import sum_by_place
from perfdoctor.timeline.job import JobTimeline
from perfdoctor.timeline.processes import exchanging, variables_of

# The time that was watched is cut into so many slices, as that of a trace is.
_SLICES = 20


@gc_paused()
def summarise_recording(recording: Recording) -> HostSummary:
    """Accounts for a recording, and keeps what the diagnosis of a job on several hosts needs of it.

    Raises:
        PerfDoctorError: it is damaged.
    """
    job = JobTimeline(recording)
    level, accounts, profiled = account_for(job)
    case = gather_case(job, accounts, profiled)
    silent = why_no_verdict(job, accounts, find_still({"": job}))
    first = accounts[0].trainer.pid if accounts else 0
    return HostSummary(
        source=recording.path.name,
        name=recording.meta.get("host", ""),
        version=recording.meta.get("perfdoctor", ""),
        torch=recording.facts.get((f"pid:{first}", "torch_version"), ""),
        started=recording.meta.get("started", ""),
        world=job.processes.world_size,
        numbered=job.processes.numbered,
        run=_run(job),
        level=level,
        accounts=tuple(map(_in_slices, accounts)),
        case=case,
        silence=silent.summary if silent is not None else "",
        steps=step_summaries(job),
        not_examined=not_examined(job, case, traced=level == TRACED),
    )


def _run(job: JobTimeline) -> tuple[str, ...]:
    """What all ranks of this run have alike, and those of another one have not; () if nothing shows it."""
    exchange = exchanging(job.recording.threads.values())
    of_each = {trainer.pid: variables_of(job.recording.processes[trainer.pid]) for trainer in job.processes.trainers}
    runs = {run_of(one, exchanges=pid in exchange or MEETING[0] in one) for pid, one in of_each.items()}
    run = runs.pop() if len(runs) == 1 else ()
    # What every host calls itself is another place on each.
    here = any(map(meets_here, of_each.values()))
    return (*run, job.recording.meta.get("host", "")) if run and here else run


def _in_slices(account: Account) -> Account:
    """What is needed of an account later: causes and waits, in few slices."""
    first, last = min(account.block_numbers, default=0), max(account.block_numbers, default=0)
    width = max(1.0, (last - first + 1) / _SLICES)
    own = sum_by_place((int((block - first) / width), amounts) for block, amounts in account.own.items())
    waits = sum_by_place(
        ((int((block - first) / width), rank), amounts) for (block, rank), amounts in account.waits.items()
    )
    return Account(account.trainer, own=own, waits=waits, phases=account.phases)
