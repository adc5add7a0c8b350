"""How long steps take, as rows of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfdoctor.diagnosis import BACKWARD_PASSES
from perfdoctor.reports.text import clean, duration, fact, number, percent, sentence
from perfdoctor.reports.wording import label, worded

Rows = tuple[tuple[str, str], ...]


def step_rows(steps: Mapping[str, Any]) -> Rows:
    """How long a step takes, and what each phase takes of it, longest first."""
    if "phases" not in steps:
        traced = steps.get("profiled", {})
        return (
            _whole_steps(traced, label("steps_traced"))
            if "phases" in traced
            else tuple(fact(name, value) for name, value in steps.items())
        )
    passes = steps.get("unit") == BACKWARD_PASSES
    title = label("steps_counted", passes=passes) if "unit" in steps else label("steps_observed")
    rows = list(_whole_steps(steps, title))
    if apart := steps.get("serialised"):
        hidden = label("in_sum", time=duration(apart["sum_s"]), steps=number(apart["count"]))
        overlap = label("overlaps", share=percent(apart["overlap"]))
        rows.append((label("parts_by_themselves"), label("listed", items=(hidden, overlap))))
    if steps.get("collector_s"):
        rows.append((label("of_that_gc"), label("a_step", time=duration(steps["collector_s"]))))
    if steps.get("outside_s"):
        rows.append((label("between_steps"), duration(steps["outside_s"])))
    for what, name in (("trial", label("trial_batch")), ("profiled", label("profiled"))):
        if made := steps.get(what):
            rows.append((name, label("over_steps", time=duration(made["median_s"]), steps=number(made["count"]))))
    return tuple(rows)


def _whole_steps(steps: Mapping[str, Any], title: str) -> Rows:
    """Steps, their phases, and in which functions of the job's own they pass, as far as that is known."""
    median, mean, slow = (duration(steps[name]) for name in ("median_s", "mean_s", "p95_s"))
    rows = [(title, number(steps["count"]))]
    per = label("time_per_pass" if steps.get("unit") == BACKWARD_PASSES else "time_per_step")
    rows.append((per, label("step_times", median=median, mean=mean, slow=slow)))
    apart, device = steps.get("serialised"), steps.get("device")
    alone = {name: spent["median_s"] for name, spent in apart["phases"].items()} if apart else {}
    there = device["phases"] if device else {}
    for phase, spent in steps["phases"].items():
        spends = [label("sequence", items=(label("a_step", time=duration(spent["mean_s"])), percent(spent["share"])))]
        spends += [label("on_device", time=duration(there[phase]))] if phase in there else []
        spends += [label("by_itself", time=duration(alone[phase]))] if phase in alone else []
        rows.append((sentence(clean(worded(phase))), label("listed", items=tuple(spends))))
    for place, one in enumerate(steps.get("lines", ())):
        name = "" if place else label("in_functions")
        rows.append((name, label("of_a_step", share=percent(one["share"]), line=clean(one["line"]))))
    return tuple(rows)
