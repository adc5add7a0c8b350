"""Writing: checkpoints and logs."""

import math
from collections.abc import Iterator

from perfdoctor.causes import CHECKPOINT_WRITE, LOG_WRITE
from perfdoctor.diagnosis import Advice, advise, say
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import IN_MEMORY
from perfdoctor.rules.case import Case
from perfdoctor.rules.rule import Rule, freed


def _save_otherwise(case: Case) -> Iterator[Advice]:
    share, path = case.share(CHECKPOINT_WRITE), case.hot_path(CHECKPOINT_WRITE)
    times = _times_rarer(share)
    yield advise(
        "saving.save_behind",
        freed(share, share),  # in the background the writes still take as long as now
        path=path,
        share=share,
        line=case.hot_line(CHECKPOINT_WRITE),
        ranks=len(case.trainers),
    )
    yield advise(
        "saving.save_less_often",
        freed(share * (1 - 1 / times)),
        share=share,
        times=times,
        bearable=thresholds.REPORTED_SHARE,
    )
    if case.file_system(path) not in IN_MEMORY:
        yield advise("saving.faster_storage")


def _log_otherwise(case: Case) -> Iterator[Advice]:
    share = case.share(LOG_WRITE)
    times = _times_rarer(share)
    yield advise(
        "saving.log_less_often",
        freed(share * (1 - 1 / times)),
        path=case.hot_path(LOG_WRITE),
        share=share,
        line=case.hot_line(LOG_WRITE),
        times=times,
    )
    yield advise("saving.faster_reader" if case.is_read_by_another(LOG_WRITE) else "saving.no_flush")
    yield advise("saving.another_thread")


def _times_rarer(share: float) -> int:
    """How many times more rarely something must happen until its share of the time is not reported any more."""
    bearable, rest = thresholds.REPORTED_SHARE, max(1 - share, thresholds.LEAST_LEFT)
    return max(2, math.ceil(share * (1 - bearable) / (bearable * rest)))


SAVING_RULES = (
    Rule(
        CHECKPOINT_WRITE,
        say("saving.checkpoints"),
        ("written_to_storage", "written_by_calls", "device_written", "device_busy"),
        _save_otherwise,
        say("saving.checkpoints_refuted"),
    ),
    Rule(
        LOG_WRITE,
        say("saving.logs"),
        ("write_calls", "written_to_storage", "device_busy", "exposed_rest", "overlap"),
        _log_otherwise,
        say("saving.logs_refuted"),
    ),
)
