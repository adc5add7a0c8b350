"""From dumps of torch's Flight Recorder to the diagnosis of a job that hung: which rank did not come to a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from perfdoctor import __version__
from perfdoctor.analysis.coverage import of_stuck
from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.diagnosis import INSIDE, CauseShare, Diagnosis, NotExamined, NoVerdict, Verdict, Why
from perfdoctor.errors import PerfDoctorError
from perfdoctor.messages import say
from perfdoctor.stuck.dumps import Dump, DumpError, read_dump
from perfdoctor.stuck.recorded_calls import judge_dumps, open_for_s, world_of

_HINT = "Start the job with TORCH_FR_BUFFER_SIZE=2000, and gather the dumps of all its ranks in one folder."


def diagnose_dumps(files: Sequence[Path]) -> Diagnosis:
    """Makes the diagnosis of one job.

    Args:
        files: dumps of its ranks; their names end in the number of the rank.

    Raises:
        PerfDoctorError: none can be read, or two are of the same rank.
    """
    dumps: dict[int, Dump] = {}
    unread: list[NotExamined] = []
    for file in files:
        rank = _rank_of(file)
        if rank in dumps:
            raise PerfDoctorError(f"There are two dumps of rank {rank} in these files, {file} is one.", hint=_HINT)
        try:
            dumps[rank] = read_dump(rank, file.stat().st_mtime_ns, file.read_bytes())
        except (OSError, DumpError) as error:
            unread.append(NotExamined("flight recorder", f"{file.name} cannot be read: {error}", _HINT))
    if not dumps:
        raise PerfDoctorError(f"None of these dumps can be read. {unread[0].reason}", hint=_HINT)
    stuck = judge_dumps(dumps)
    missing = (
        NoVerdict(Why.TOO_BRIEF, say("stuck.no_call_open", open_s=open_for_s(dumps)))
        if stuck is None
        else of_stuck(stuck)
    )
    return Diagnosis(
        version=__version__,
        verdict=Verdict(None, None, 0.0, 0.0, 1.0, missing.straggler_rank, INSIDE, missing.summary, missing),
        breakdown=(CauseShare(UNATTRIBUTED, 1.0),),
        findings=(),
        not_examined=tuple(unread),
        job={"trainers": world_of(dumps), "dumps": [file.name for file in files]},
        stuck=stuck,
    )


def _rank_of(file: Path) -> int:
    found = re.search(r"\d+$", file.name)
    if found is None:
        raise PerfDoctorError(f"The name of the dump {file} does not end in the number of a rank.", hint=_HINT)
    return int(found.group())
