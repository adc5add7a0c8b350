"""What a trainer's threads do in each part of a step, and how they wait for the device."""

from __future__ import annotations

from functools import cache

from tests.gpu_jobs import places
from tests.gpu_jobs.host import Doing
from tests.gpu_jobs.job import Job, Unsure
from tests.gpu_jobs.places import Code, Stack

_NEVER_YIELDS = 0.1  # the part of a wait in the kernel


class Waits:
    """How this job's threads wait for the device."""

    def __init__(self, job: Job) -> None:
        self._unsure = job.unsure
        # Beside a thread that wants the GIL this is not simulated.
        self._holds_gil = job.unsure.torch == "2.0" and not job.hog

    @cache  # noqa: B019 (lives as long as the job)
    def device(self, stacks: tuple[Stack, ...]) -> Doing:
        """For what was launched."""
        how = self._unsure.wait
        if how == "spin":
            return Doing(stacks=stacks, code=_spin(self._unsure.vdso), system=0.01, gil=self._holds_gil)
        if how == "yield":
            code = (*_spin(self._unsure.vdso), places.YIELD)
            return Doing(stacks=stacks, code=code, system=0.6, gil=self._holds_gil)
        target = {"futex": "", "poll": "anon:eventfd", "ioctl": "file:/dev/nvidia0"}[how]
        return Doing("S", how, target, stacks)

    @cache  # noqa: B019
    def room(self, stacks: tuple[Stack, ...]) -> Doing:
        """For room in the launch queue."""
        yields = self._unsure.full_system > _NEVER_YIELDS
        code = places.YIELDS if yields else _spin(self._unsure.full_vdso)
        return Doing(stacks=stacks, code=code, system=self._unsure.full_system)

    @cache  # noqa: B019
    def driver(self, stacks: tuple[Stack, ...], blocked: bool, device: str) -> Doing:
        """In a call of the driver that allocates or frees."""
        if blocked:
            return Doing("S", "ioctl", f"file:/dev/{device}", stacks)
        return Doing(stacks=stacks, code=places.DRIVER, system=0.85)


def _spin(vdso: float) -> Code:
    return (
        *([(vdso, "[vdso]", "")] if vdso else []),
        *((weight * (1 - vdso) / 0.65, image, symbol) for weight, image, symbol in places.SPIN[1:]),
    )


def _eager(stacks: tuple[Stack, ...], code: Code = places.EAGER) -> Doing:
    """Launches operators from Python."""
    return Doing(stacks=stacks, code=code, gil=True, lets_go=0.4)


class Doings:
    """What a trainer's threads do in each part of a step."""

    def __init__(self, ddp: bool, compiled: bool, unsure: Unsure) -> None:
        forward = places.COMPILED if compiled else places.forward(ddp)
        self.forward = _eager(forward, places.REPLAY if compiled else places.EAGER)
        self.loss = _eager(places.LOSS)
        self.optimizer = _eager(places.OPTIMIZER)
        self.item = _eager(places.ITEM)
        self.layer_item = Doing(
            stacks=(places.in_layer(ddp, places.own("Block.forward", 44)),), code=places.EAGER, gil=True
        )
        self.own = Doing(stacks=places.OWN_PYTHON, code=places.IN_PYTHON, gil=True)
        self.backward = Doing("S", "futex", stacks=places.BACKWARD)
        self.enter = _eager(places.BACKWARD)
        self.autograd = Doing(code=places.IN_AUTOGRAD)
        self.copy = _eager(places.COPY)
        staging = {"libc": places.STAGED_BY_LIBC, "driver": places.STAGED_BY_DRIVER}
        self.staging = Doing(stacks=places.COPY, code=staging[unsure.staging])
        self.exchange = _eager(places.ALL_REDUCE)
        self.collect = Doing(stacks=places.COLLECT, code=places.COLLECTOR, gil=True, collecting=True)
        self.compile = Doing(stacks=places.COMPILING, code=places.IN_PYTHON, gil=True)
        self.compile_waits = Doing("S", "futex", stacks=places.COMPILE_WAITS)
        self.save = Doing(stacks=places.SAVE, code=places.CRC)
        self.saving = Doing("D", "write", "file:/checkpoints/step.pt", places.SAVE)
        self.syncing = Doing("D", "fsync", "file:/checkpoints/step.pt", places.SAVE)
        self.log = Doing(stacks=places.LOG, code=places.IN_PYTHON, gil=True)
        self.logging = Doing("D", "fsync", "file:/home/user/job/metrics.jsonl", places.LOG)
