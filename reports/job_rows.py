"""What was watched, its settings, and what watching it cost, as rows of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfdoctor.messages import say
from perfdoctor.reports.step_rows import Rows
from perfdoctor.reports.text import clean, fact
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
