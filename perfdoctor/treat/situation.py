"""One change to try, and what decides which can be tried: diagnosis, cores, what the job has made and called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfdoctor import causes
from perfdoctor.diagnosis import Advice, Diagnosis
from perfdoctor.knowledge.versions import FUSED_ON_CPU, compiles, is_older
from perfdoctor.treat.run import RunChange


@dataclass(frozen=True, slots=True)
class Treatment:
    """One change to try.

    Attributes:
        id: what is changed, as short as it can be said in code.
        advice: its words, with the line that makes it permanent.
        causes: those that it can help against.
        change: how a run is made different.
        exact: it does not touch what is computed.
        bound: it shows what could be gained at most, and is never kept.
        general: it is against no cause in particular.
        slow_start: the first step may take minutes.
        keywords: arguments that make it permanent, by the kind of fact that says where the call is.
        fixes: messages of the diagnosis's advice that mean the same.
    """

    id: str
    advice: Advice
    causes: tuple[str, ...]
    change: RunChange
    exact: bool = False
    bound: bool = False
    general: bool = False
    slow_start: bool = False
    keywords: Mapping[str, Mapping[str, str]] | None = None
    fixes: tuple[str, ...] = ()


class Situation:
    """What decides which treatments can be tried: the diagnosis, and what the job has made and called.

    Args:
        diagnosis: of the job as it is.
        facts: what the start hook has reported.
        variables: the environment in which the job is started.
        waited: files and folders that it was seen to wait for; none where nobody looked.
        own_cores: on which it may run, neighbours together; none where it can no longer be bound to some.
    """

    def __init__(
        self,
        diagnosis: Diagnosis,
        facts: Sequence[Mapping[str, Any]],
        variables: Mapping[str, str],
        waited: Sequence[str] = (),
        own_cores: Sequence[int] = (),
    ) -> None:
        self.shares = {line.cause: line.share for line in diagnosis.breakdown}
        self.variables = variables
        self.waited = tuple(waited)
        self.own_cores = tuple(own_cores)
        self._facts = facts
        self._advice = [fix for one in diagnosis.findings for fix in one.fixes if isinstance(fix, Advice)]
        settings = diagnosis.job.get("settings", {})
        self.cores = max(1, int(float(settings.get("cores") or settings.get("host_cores") or 1)))
        self.trainers = max(1, len(diagnosis.ranks))
        devices = {fact["device"] for fact in (*self.all("optimizer"), *self.all("loss"))}
        self.on_gpu = bool(devices - {None, "cpu"})
        torch: str | None = next((fact["version"] for fact in self.all("torch")), None)
        self.can_fuse = self.on_gpu or not is_older(torch, FUSED_ON_CPU)
        self.can_compile = compiles(torch, diagnosis.job.get("python"))

    @property
    def cores_each(self) -> int:
        """Cores for each trainer."""
        return max(1, self.cores // self.trainers)

    @property
    def threads(self) -> int:
        """Threads of each trainer's arithmetic, as the script sets them, or else as torch chose them."""
        counts = [fact["values"]["threads"] for fact in self.all("threads")]
        counts = counts or [fact["threads"] for fact in self.all("torch")]
        return int(counts[-1]) if counts else self.cores_each

    @property
    def workers(self) -> int:
        """The most workers that a loader has."""
        return max((int(fact["values"].get("num_workers") or 0) for fact in self.all("loader")), default=0)

    def all(self, kind: str) -> list[Mapping[str, Any]]:
        """Facts of a kind."""
        return [fact for fact in self._facts if fact["kind"] == kind]

    def share(self, among: Sequence[str]) -> float:
        """What some causes take together of the wall time."""
        return sum(self.shares.get(cause, 0.0) for cause in among)

    def advised(self, message: str) -> dict[str, Any]:
        """The values of a piece of advice that the diagnosis gives; none where it does not."""
        return next((dict(fix.message.values) for fix in self._advice if fix.message.id == message), {})

    def predicted(self, treatment: Treatment) -> float | None:
        """The speed-up that the diagnosis predicts for this very change; None where it does not advise it."""
        same = [fix.predicted_speedup for fix in self._advice if fix.message.id in treatment.fixes]
        return max(filter(None, same), default=None)

    def by_hand(self, treatments: Sequence[Treatment]) -> tuple[Advice, ...]:
        """What the diagnosis predicts a gain for, and none of the treatments changes: each piece of advice once."""
        tried = {fix for one in treatments for fix in one.fixes}
        left = [one for one in self._advice if one.message.id not in tried and (one.predicted_speedup or 1.0) > 1.0]
        return tuple({fix.message.id: fix for fix in reversed(left)}.values())[::-1]

    def most(self, treatment: Treatment) -> float | None:
        """The speed-up that an end of all that a treatment is against would bring; None where that is nothing."""
        ended = self.share([cause for cause in treatment.causes if not causes.CAUSES[cause].healthy])
        return 1 / (1 - ended) if 0 < ended < 1 else None


def own_cores() -> tuple[int, ...]:
    """The cores on which what this process starts may run; those of one package together, and threads of one core."""
    return tuple(sorted(os.sched_getaffinity(0), key=lambda core: (*_place(core), core)))


def _place(core: int) -> tuple[int, int]:
    """Package and number of a core, which the threads of one core share; its own number where nothing is said."""
    topology = Path(f"/sys/devices/system/cpu/cpu{core}/topology")
    with suppress(OSError, ValueError):
        return int((topology / "physical_package_id").read_text()), int((topology / "core_id").read_text())
    return 0, core


def shared_out(cores: Sequence[int], trainers: int, workers: int) -> list[tuple[list[int], list[int]]]:
    """Cores of each trainer and of its loader workers.

    Each worker has one, as far as there is one left for the trainer.

    Args:
        cores: all that there are, neighbours together.
        trainers: how many share them.
        workers: how many each of them has.
    """
    each = len(cores) // trainers
    own = max(1, each - workers)
    parts = [cores[number * each : (number + 1) * each] for number in range(trainers)]
    return [(list(part[:own]), list(part[own:])) for part in parts]
