"""Tables of a report: the job, its steps, and what the diagnosis cost, as rows of a label and a text."""

from collections.abc import Mapping
from typing import Any

from perfdoctor.reports.text import clean, duration, fact, number, percent, sentence

Rows = tuple[tuple[str, str], ...]

# Names of the recorder's that say little to a reader.
_COSTS = {
    "ticks": "samples of the job",
    "late_ticks": "late samples",
    "trace_way": "traced by",
    "trace_s": "then traced_s",
    "trace_stopped_s": "stopped for it_s",
    "trace_held_s": "waited for the profiler_s",
}
_FACTS = {"root_pid": "top process", "stopped": "watching ended"}
_ENDS = {"duration": "when its time was up", "job ended": "with the job", "interrupted": "when it was interrupted"}
# Environment variables that torchrun sets for itself, and file systems without files on a disk or a server.
_LAUNCHERS = ("env.TORCHELASTIC_", "env.ROLE_", "env.GROUP_", "env.TORCH_NCCL_ASYNC_ERROR_HANDLING")
_NO_DISK = ("tmpfs", "devtmpfs", "ramfs", "proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue")


def step_rows(steps: Mapping[str, Any]) -> Rows:
    """How long a step takes, and what each phase takes of it, longest first."""
    if "phases" not in steps:
        return _rows(steps)
    median, mean, slow = (duration(steps[name]) for name in ("median_s", "mean_s", "p95_s"))
    rows = [("Steps observed", number(steps["count"]))]
    rows.append(("Time per step", f"{median} in the median, {mean} in the mean, {slow} or less in 95%"))
    apart, device = steps.get("serialised"), steps.get("device")
    alone = {name: spent["median_s"] for name, spent in apart["phases"].items()} if apart else {}
    there = device["phases"] if device else {}
    for name, spent in steps["phases"].items():
        text = f"{duration(spent['mean_s'])} a step, {percent(spent['share'])}"
        text += f"; {duration(there[name])} on the device" if name in there else ""
        text += f"; {duration(alone[name])} by itself" if name in alone else ""
        rows.append((sentence(clean(name)), text))
    if apart:
        hidden = f"{duration(apart['sum_s'])} a step in sum, over {number(apart['count'])} steps"
        rows.append(("Parts by themselves", f"{hidden}; {percent(apart['overlap'])} of that overlaps"))
    if steps["collector_s"]:
        rows.append(("Of that, garbage collection (GC)", f"{duration(steps['collector_s'])} a step"))
    if steps["outside_s"]:
        rows.append(("Between steps, not counted", duration(steps["outside_s"])))
    for what, name in (("trial", "On a batch in memory"), ("profiled", "While profiled")):
        if made := steps.get(what):
            rows.append((name, f"{duration(made['median_s'])} per step, over {number(made['count'])} steps"))
    return tuple(rows)


def job_rows(job: Mapping[str, Any]) -> Rows:
    """What was watched, without what says nothing to a reader; the JSON report has it all."""
    shown = dict(job)
    if shown.get("root_pid") == shown.get("pid"):
        shown.pop("root_pid", None)
    if isinstance(settings := shown.get("settings"), Mapping):
        shown["settings"] = {name: value for name, value in settings.items() if _tells(name, str(value))}
    shown["stopped"] = _ENDS.get(str(shown.get("stopped")), shown.get("stopped"))
    if shown["stopped"] is None:
        del shown["stopped"]
    return _rows(_renamed(shown, _FACTS))


def _tells(setting: str, value: str) -> bool:
    """Whether a setting is of the job's own making: not what a launcher sets, nor a mount without files on a disk."""
    return not setting.startswith(_LAUNCHERS) and not (setting.startswith("mount.") and value in _NO_DISK)


def _renamed(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in table.items()}


def _rows(table: Mapping[str, Any]) -> Rows:
    return tuple(fact(name, value) for name, value in table.items())


def cost_rows(overhead: Mapping[str, Any]) -> Rows:
    """What the diagnosis cost."""
    return _rows(_renamed(overhead, _COSTS))
