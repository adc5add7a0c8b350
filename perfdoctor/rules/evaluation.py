"""Passes without gradients: evaluations that take a good part of the training's time."""

from collections.abc import Iterator
from dataclasses import replace

from perfdoctor.causes import EVALUATION
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.messages import say
from perfdoctor.rules.case import Case
from perfdoctor.rules.rule import Rule, rarer, times_rarer


def _evaluate_otherwise(case: Case) -> Iterator[Advice]:
    share = max(case.share(EVALUATION), case.mean_of("own_evaluating"))
    times = times_rarer(share)
    # What a callback of the job's own evaluates, a library's arguments do not change.
    loop = str(case.settings.get("evaluation_loop", ""))
    # In a library's loop the line that takes most of it is one of the model's.
    line = str(case.settings.get("evaluates_at", "")) or (None if loop else case.hot_line(EVALUATION))
    bearable, when = thresholds.REPORTED_SHARE, rarer(case, "evaluates_when", times)
    yield advise("evaluation.less_often", share=share, line=line, times=times, bearable=bearable, loop=loop, when=when)
    yield advise("evaluation.subset", times=times, loop=loop)
    larger = advise("evaluation.larger_batches", loader=case.may_have_loader)
    yield replace(larger, other_loader=True)
    yield advise("evaluation.inference_mode", line=line)


EVALUATION_RULES = (
    Rule(
        EVALUATION,
        say("evaluation.passes"),
        ("own_evaluating", "trainer_cores"),
        _evaluate_otherwise,
        say("evaluation.passes_refuted"),
    ),
)
