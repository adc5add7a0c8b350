"""Whether two runs can be compared: what is not the same in them, and what that means.

A setting that differs may be the very change that is tried. Other hardware or other versions may explain a difference
by themselves. Where a step is other work, or was measured in another way, its time says nothing of a change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perfdoctor.compare.side import Side
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import PLACES
from perfdoctor.results.comparison import COMMAND, Difference, Weight

# Facts about a job, settings among them, by what another value means; any other setting may be the change.
_FORBIDS = ("steps", "world_size", "settings.on_gpu")
_EXPLAINS = (
    *("perfdoctor", "level", "host", "devices", "python", "torch"),
    *("settings.cpu_model", "settings.cores", "settings.host_cores", "settings.affinity_cores", "settings.quota_cores"),
    *("settings.gpu_name", "settings.gpus", "settings.compute_capability", "settings.memory_limit_bytes"),
    *("settings.memory_bytes", "settings.kernel"),
)
_DISKS = ("settings.disk.", "settings.disk_kind.")
_NOTED = (COMMAND,)
# Where these are missing, the job has none of them; of others it is then not known.
_OR_NONE = ("settings.env.", "settings.on_gpu", "settings.quota_cores", "settings.memory_limit_bytes")
# Settings that are counted while the job runs, and differ a little from run to run.
_COUNTED = ("settings.trainer_threads", "settings.worker_threads")
_PLACES = tuple(f"env.{name}" for name in PLACES)
_ORDER = {weight: place for place, weight in enumerate(Weight)}


def differences(before: Side, after: Side) -> tuple[Difference, ...]:
    """What is not the same in two runs, what forbids a comparison first."""
    one, other = _facts(before), _facts(after)
    names = dict.fromkeys((*one, *other))
    if not (before.settings and after.settings):  # a trace has hardly any
        names = {name: None for name in names if name in one and name in other}
    found = [
        Difference(name, one.get(name), other.get(name), _weight(name))
        for name in names
        if _differs(name, one.get(name), other.get(name))
    ]
    found += _by_amount(before, after)
    return tuple(sorted(found, key=lambda difference: _ORDER[difference.weight]))


def _facts(side: Side) -> dict[str, str]:
    """What is known of a run, as text."""
    facts = {name: side.job[name] for name in (*_FORBIDS, *_EXPLAINS, *_NOTED) if name in side.job}
    facts["steps"] = side.run.step_is
    facts["level"], facts["perfdoctor"] = side.run.level, side.version
    for name, value in side.settings.items():
        if not name.startswith(_PLACES):
            facts[f"settings.{name}"] = value
    return {name: _text(value) for name, value in facts.items() if value not in (None, "")}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _differs(name: str, before: str | None, after: str | None) -> bool:
    if before is None or after is None:
        return name.startswith(_OR_NONE)
    if name in _COUNTED:
        one, other = float(before), float(after)
        return abs(one - other) > thresholds.SAME_COUNT * max(one, other)
    return before != after


def _weight(name: str) -> Weight:
    if name in _FORBIDS:
        return Weight.FORBIDS
    return Weight.EXPLAINS if name in _EXPLAINS or name.startswith(_DISKS) else Weight.NOTED


def _by_amount(before: Side, after: Side) -> Iterator[Difference]:
    """What is hardly ever quite the same, where it differs much."""
    one, other = before.run.watched_s, after.run.watched_s
    if min(one, other) * thresholds.MUCH_LONGER < max(one, other):
        yield Difference("watched_seconds", f"{one:.3g}", f"{other:.3g}", Weight.EXPLAINS)
    busy = [side.neighbours for side in (before, after) if side.neighbours is not None]
    if len(busy) == 2 and abs(busy[0] - busy[1]) > thresholds.OTHER_NEIGHBOURS:
        yield Difference("neighbour_cores", f"{busy[0]:.2g}", f"{busy[1]:.2g}", Weight.EXPLAINS)
