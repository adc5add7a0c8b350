"""What was watched, its settings, how long its steps take, and what watching it cost, as rows of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfdoctor.diagnosis import BACKWARD_PASSES
from perfdoctor.messages import say
from perfdoctor.reports.text import clean, duration, fact, number, percent, sentence
from perfdoctor.reports.wording import label, worded

# Names of the recorder's that say little to a reader.
_COSTS = {
    "ticks": "samples of the job",
    "late_ticks": "late samples",
    "report_cpu_s": "cpu of making the reports_s",
    "trace_way": "traced by",
    "trace_s": "then traced_s",
    "trace_stopped_s": "stopped for it_s",
    "trace_held_s": "waited for the profiler_s",
}
_FACTS = {"root_pid": "top process", "stopped": "watching ended", "neighbour_cores": "cores kept busy by others"}
_ENDS = {"duration": "when its time was up", "job ended": "with the job", "interrupted": "when it was interrupted"}
# Environment variables that launchers set for themselves, and file systems without files on a disk or a server.
_LAUNCHERS = (
    *("env.TORCHELASTIC_", "env.ROLE_", "env.GROUP_", "env.TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    *("env.PMIX_NAMESPACE", "env.SLURM_STEP_ID", "env.RAY_JOB_ID"),
)
_NO_DISK = ("tmpfs", "devtmpfs", "ramfs", "proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue")


def job_rows(job: Mapping[str, Any]) -> Rows:
    """What was watched but its settings, without what says nothing to a reader; the JSON report has it all."""
    shown = {name: value for name, value in job.items() if name != "settings"}
    if shown.get("root_pid") == shown.get("pid"):
        shown.pop("root_pid", None)
    if (stopped := shown.pop("stopped", None)) is not None:
        shown["stopped"] = worded(_ENDS.get(str(stopped), str(stopped)))
    if hosts := shown.get("hosts"):
        named = (label("host_with_ranks", name=clean(str(one["name"])), ranks=tuple(one["ranks"])) for one in hosts)
        shown["hosts"] = label("listed", items=tuple(named))
    return _rows(_renamed(shown, _FACTS))


def setting_rows(job: Mapping[str, Any]) -> Rows:
    """The job's settings that matter, and the hardware that it has."""
    settings = job.get("settings")
    if not isinstance(settings, Mapping):
        return ()
    shown = {name: value for name, value in settings.items() if _is_shown(str(name), str(value))}
    return tuple((setting_name(str(name)), _setting_value(str(name), value)) for name, value in shown.items())


def setting_name(setting: str) -> str:
    """What a setting is called."""
    return clean(say("settings.name", setting=setting))


def _setting_value(setting: str, value: Any) -> str:
    if not isinstance(value, str):
        return fact(setting, value)[1]
    if value in ("yes", "no") and not setting.startswith("env."):
        return label("yes" if value == "yes" else "no")
    return clean(say("settings.value", setting=setting, text=value))


def _is_shown(setting: str, value: str) -> bool:
    """Whether a setting is of the job's own making: not what a launcher sets, nor a mount without files on a disk."""
    return not setting.startswith(_LAUNCHERS) and not (setting.startswith("mount.") and value in _NO_DISK)


def _renamed(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in table.items()}


def _rows(table: Mapping[str, Any]) -> Rows:
    return tuple(fact(name, value) for name, value in table.items())


def cost_rows(overhead: Mapping[str, Any]) -> Rows:
    """What the diagnosis cost."""
    return _rows(_renamed(overhead, _COSTS))


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
