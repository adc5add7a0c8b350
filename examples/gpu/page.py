"""The page of jobs on GPUs: verdicts against what was planted, and readings against those of others."""

import statistics
from pathlib import Path
from typing import Any

import telling

PAGE = Path("docs", "accuracy-gpu.md")
ATTACH, TRACE, INSIDE = "attach", "trace", "inside"
WAYS = (ATTACH, TRACE, INSIDE)
_DRY = "**A dry run without a GPU: it tries the script, and the verdicts below mean nothing.**\n\n"
_HEAD = """\
# Accuracy on GPU jobs

{dry}Each job below has one planted bottleneck, or none. perfdoctor looks at it from outside (`attach`, for about six
seconds), in a profiler trace of a few steps (`analyze`, the trace alone), and where that was gathered from inside
(`with diagnose():`, its profile included). Then the job runs fixed: the true share is what that gains, 1 - its steps a
second before / fixed, each measured once for about two seconds. The shares that perfdoctor says are those of the
expected cause; a cause in bold is a wrong verdict. Where nothing is wrong, `gpu.compute` is right, and there is
nothing to gain. The gain measured is that of the fix; the one predicted is what attach promises at most of its first
change for the expected cause, which need not be the same change.

{totals}

| job | expected | step | true share | attach | trace | inside | gain measured | predicted |
|---|---|---|---|---|---|---|---|---|
{rows}

{fixed}What to keep in mind:

- The jobs were written by the authors of perfdoctor, most of them to have one clear bottleneck: this is no sample of
  what people train.
- One run of each job on one kind of machine, on the day below. Nothing was repeated, so nothing says how far these
  numbers would scatter.
- Traces are kept with as many steps as are small enough, one at least. What the page says of them is of those steps.
- Attach, traces and the fixes' gains are different measures: a trace slows its steps down, which adds to what the
  host takes, and a fix may gain more or less than all the time of its cause.
- Rules that are changed after these jobs were seen cannot be judged by the same jobs.

## Jobs

{jobs}

## Readings

What the GPU probe read while `attach` looked, beside `nvidia-smi` at the same time and, of examples, torch's own
counters shortly after: the number of jobs in which both agree within the tolerance of `examples/gpu/beside.py`.

| reading | source | agree | worst case (perfdoctor, other) |
|---|---|---|---|
{readings}

{timer}{notes}Measured on:

{devices}

Gathered by `python examples/gpu/session.py gather`, written by `session.py tell` from what lies in `tests/recordings`.
"""
_TIMER = """\
## Phases on the device

perfdoctor's times of phases beside events of torch's by hand (`examples/gpu/timing.py`). They agree within a tenth, or
0.3 ms: the two ways do not do the same on the host at a border.

| phase | perfdoctor | by hand | agree |
|---|---|---|---|
{rows}

"""


def write(root: Path, kept: telling.Kept) -> list[str]:
    """Writes the page under a root, and returns its totals."""
    jobs = [judged(name, job, kept) for name, job in kept.measured["jobs"].items()]
    file = root / PAGE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(render(jobs, kept.measured["timer"], kept.measured["notes"]))
    return totals(jobs)


def judged(name: str, job: dict[str, Any], kept: telling.Kept) -> dict[str, Any]:
    """A job with what each way says of it."""
    ways = {ATTACH: kept.attached(job["kept_as"]), TRACE: kept.traced(job["kept_as"]), INSIDE: job.get("inside")}
    ways["fixed"] = kept.attached(f"{job['kept_as']}_fixed")
    return {**job, "name": name, **ways, "compared": kept.compared(job)}


def render(jobs: list[dict[str, Any]], timer: list[dict[str, Any]], notes: list[str]) -> str:
    """The page.

    Args:
        jobs: as ``judged`` has them.
        timer: rows of ``timing.py``.
        notes: what is to be known of the session.
    """
    timed = "\n".join(
        f"| {row['what']} | {_ms(row['perfdoctor'])} | {_ms(row['by_hand'])} | {'yes' if row['agrees'] else '**no**'} |"
        for row in timer
    )
    notes = [*notes, *(f"{job['name']}: {note}" for job in jobs for note in _notes(job))]
    fixed = ", ".join(f"{job['name']} {job['fixed']['cause']}" for job in jobs if job["fixed"])
    return _HEAD.format(
        dry=_DRY if any(job["dry"] for job in jobs) else "",
        totals="\n".join(f"- {line}" for line in totals(jobs)),
        rows="\n".join(_row(job) for job in jobs),
        jobs="\n".join(f"- **{job['name']}**: {job['about']}" for job in jobs),
        readings="\n".join(_readings(jobs)) or "| none | | | |",
        timer=_TIMER.format(rows=timed) if timer else "",
        fixed=f"Attached to jobs that were fixed: {fixed}.\n\n" if fixed else "",
        notes="## Notes\n\n" + "".join(f"- {note}\n" for note in notes) + "\n" if notes else "",
        devices="\n".join(_devices(jobs)),
    )


def totals(jobs: list[dict[str, Any]]) -> list[str]:
    """How often each way was right, and how far its shares are from what the fixes gained."""
    lines = []
    for way in WAYS:
        said = [job for job in jobs if job[way]]
        if not said:
            continue
        bottlenecks = sum(job[way]["bottleneck"] == telling.corpus.CAUSES[job["expected"]].bottleneck for job in said)
        causes = sum(right(job, way) for job in said)
        errors = [abs(share_of(job, way) - job["true_share"]) for job in said if job["true_share"] is not None]
        error = f"; the share is {statistics.median(errors):.2f} off in the median of {len(errors)}" if errors else ""
        lines.append(f"{way}: bottleneck right in {bottlenecks}, cause in {causes} of {len(said)} jobs{error}.")
    return lines


def right(job: dict[str, Any], way: str) -> bool:
    """Whether one way named what was planted."""
    return bool(job[way] and job[way]["cause"] == job["expected"])


def share_of(job: dict[str, Any], way: str) -> float:
    """The share that one way gives to the expected cause."""
    return float(job[way]["shares"].get(job["expected"], 0.0))


def _row(job: dict[str, Any]) -> str:
    share, pace = job["true_share"], job["steps_per_s"]
    cells = [job["name"], job["expected"], _ms(1 / pace) if pace else "?", "-" if share is None else f"{share:.2f}"]
    promised = (job[ATTACH] or {}).get("gains", {}).get(job["expected"])
    gains = ["-", "-"] if share is None else [_times(1 / (1 - share)), _times(promised)]
    return "| " + " | ".join([*cells, *(_said(job, way) for way in WAYS), *gains]) + " |"


def _times(speedup: float | None) -> str:
    return "-" if speedup is None else f"{speedup:.1f}x"


def _said(job: dict[str, Any], way: str) -> str:
    if not job[way]:
        return "-"
    mark = "" if right(job, way) else f"**{job[way]['cause'] or 'no verdict'}** "
    return f"{mark}{share_of(job, way):.2f}"


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "not known"
    return f"{seconds * 1000:.{0 if seconds > 0.1 else 3}{'f' if seconds > 0.1 else 'g'}} ms"


def _readings(jobs: list[dict[str, Any]]) -> list[str]:
    """A row for each pair of readings; one only for a source that said nothing of any job."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for job in jobs:
        for one in job["compared"]:
            if "reading" in one:
                rows.setdefault((one["source"], f"{one['reading']} | {one['source']} {one['theirs']}"), []).append(one)
    heard = {source for (source, _), found in rows.items() if any("agrees" in one for one in found)}
    silent = [source for source in dict.fromkeys(source for source, _ in rows) if source not in heard]
    lines = [f"| any | {source} | it said nothing | |" for source in silent]
    for (source, names), found in rows.items():
        known = [one for one in found if "agrees" in one]
        if known:
            worst = max(known, key=lambda one: abs(one["perfdoctor"] - one["other"]))
            agree = f"{sum(one['agrees'] for one in known)} of {len(known)}"
            lines.append(f"| {names} | {agree} | {worst['perfdoctor']:.4g}, {worst['other']:.4g} |")
        elif source in heard:
            lines.append(f"| {names} | {found[0]['reason']} | |")
    return lines


def _notes(job: dict[str, Any]) -> list[str]:
    """What went wrong with a job, or is to be known of it."""
    return [*job["notes"], *(one["reason"] for one in job["compared"] if "reading" not in one)]


def _devices(jobs: list[dict[str, Any]]) -> list[str]:
    devices: dict[str, int] = {}
    for job in jobs:
        devices[job["device"]] = devices.get(job["device"], 0) + 1
    return [f"- {device}: {count} {'job' if count == 1 else 'jobs'}" for device, count in devices.items()]
