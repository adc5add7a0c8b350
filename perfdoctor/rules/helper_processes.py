"""Processes that a trainer asks by itself, without a loader: environments, or a pool of its own."""

from collections.abc import Iterator

from perfdoctor.causes import DATA_TRANSFER
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.rules.case import Case


def helper_fixes(case: Case, cause: str) -> Iterator[Advice]:
    """What makes a trainer wait less for them."""
    helpers = max((trainer.helpers for trainer in case.trainers), default=0)
    at_once = case.number("helpers_at_once")
    if helpers > 1 and (at_once is None or at_once < thresholds.ONE_AT_A_TIME):
        yield advise("helpers.ask_together", helpers=helpers, at_once=at_once)
    if case.settings.get("helpers") == "for input":
        yield advise("helpers.ask_ahead")
    if cause == DATA_TRANSFER:
        yield advise("helpers.send_arrays")
        yield advise("helpers.larger_requests")


def depends_on_steps(case: Case) -> bool:
    """Whether what comes next follows from steps before: an environment's answers, batches from what they change."""
    asks = "environments" in case.settings or case.settings.get("helpers") == "for the model"
    return asks or "made_of_state" in case.settings
