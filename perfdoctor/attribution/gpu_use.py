"""What the GPUs of a trainer are busy with, from what their driver and their counters say.

Of the time that a GPU is busy, each cause gets what it would free: a neighbour its time slices as far as the trainer
wanted them, lowered clocks the part that they are lowered by, slow kernels what faster ones would not need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

import numpy as np

from perfdoctor.causes import (
    BANDWIDTH,
    GPU_COMPUTE,
    GPU_CONTENTION,
    GPU_THROTTLED,
    LOW_OCCUPANCY,
    MEMORY_BANDWIDTH,
    NO_TENSOR_CORES,
    UNOBSERVED_RANK,
)
from perfdoctor.knowledge import hardware, thresholds
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.readings import Counter, Readings

# Readings that are 1 while more than the power limit holds a clock down.
_HELD_DOWN = ("clocks_limited_by_heat", "clocks_limited_by_hardware", "clocks_limited_by_power_brake")
# A mean over a span is that of instants so far apart.
_STEP_NS = NS_PER_S // 10
# Without GPM a reading is of 20 ms: fewer meet a copy by chance, or none.
_FEW = 8


@dataclass(frozen=True)
class GpuUse:
    """What the GPUs of one trainer did over the time that was watched.

    Attributes:
        busy: fraction of the time in which they ran kernels, over time; None where that could not be read.
        for_job: the part of it that was this trainer's, or that it had to wait for.
        parts: of that, cause to fraction, summing to 1.
        copying: least and most fraction of the time that copies to and from the host can have taken; None where
            their bytes were not counted.
        exchanging: fraction of the time that bytes between ranks can have taken at most; None where that is not known.
        any_busy: least and most time in which any of them is busy, in multiples of the mean over them.
        active: fraction of the time in which their multiprocessors had work; None where that was not read.
    """

    busy: Counter | None
    for_job: float
    parts: Mapping[str, float]
    copying: tuple[float, float] | None
    exchanging: float | None = None
    any_busy: tuple[float, float] = (1.0, 1.0)
    active: float | None = None

    @property
    def slowed(self) -> float:
        """Of the busy time, what it would not take with the GPU for itself and at its usual clocks."""
        return self.parts.get(GPU_THROTTLED, 0.0) + self.parts.get(GPU_CONTENTION, 0.0)

    def busy_at(self, from_ns: float, to_ns: float, waits: float = 0.0) -> float | None:
        """Mean fraction of a span in which they, or any of several, ran kernels for the trainer.

        Args:
            from_ns: begin of the span.
            to_ns: its end.
            waits: fraction of it in which the host waits for them. Whether several work at the same time or by turns is
                not read: as far as it waits, one of them works.
        """
        if self.busy is None:
            return None
        # A reading is a mean over the time before it.
        times = np.arange(from_ns, to_ns, _STEP_NS) + thresholds.UTILIZATION_WINDOW_S / 2 * NS_PER_S
        mean = float(np.interp(times, self.busy.times_ns, self.busy.values).mean())
        least, most = (min(1.0, max(0.0, mean * self.for_job * times)) for times in self.any_busy)
        return min(most, max(least, waits))

    def without_front_end(self, busy: float | None, waits: float, launching: float) -> float | None:
        """Busy time without the moment after each kernel that the driver counts, as far as nothing is queued behind."""
        if busy is None or self.active is None:
            return busy
        counted = thresholds.FRONT_END_PER_LAUNCHING * max(0.0, launching - waits)
        return max(busy - counted, min(busy, self.active / thresholds.SM_IN_SMALL_KERNELS))

    def with_exchange(self, part: float) -> GpuUse:
        """The same use with at least this part of the busy time in collectives."""
        known = self.parts.get(BANDWIDTH, 0.0) + (unobserved := self.parts.get(UNOBSERVED_RANK, 0.0))
        if part <= known:
            return self
        kept = (1 - part) / (1 - known)
        waits = {UNOBSERVED_RANK: unobserved, BANDWIDTH: part - unobserved}
        others = {cause: kept * one for cause, one in self.parts.items() if cause not in waits}
        return replace(self, parts={**others, **{cause: one for cause, one in waits.items() if one > 0}})


class GpuReader:
    """Reads the use of GPUs from one recording.

    Args:
        readings: what was read of them.
        gpus_of_ranks: the GPUs of each trainer of the job.
        asks_for_exchange: hosts ask for many collectives.
        unseen_ranks: the job has ranks that are watched nowhere.
    """

    def __init__(
        self,
        readings: Readings,
        gpus_of_ranks: Sequence[Sequence[str]],
        *,
        asks_for_exchange: bool = False,
        unseen_ranks: bool = False,
    ) -> None:
        self._readings, self._of_ranks, self._asks_for_exchange = readings, gpus_of_ranks, asks_for_exchange
        self._unseen_ranks = unseen_ranks
        self._hosts: list[GpuReader] = [self]
        self._all = sorted({gpu for gpus in gpus_of_ranks for gpu in gpus})

    def beside(self, hosts: Sequence[GpuReader]) -> GpuReader:
        """The same reader, for one of several hosts on which ranks of the job are watched."""
        self._hosts = [self, *(host for host in hosts if host is not self)]
        return self

    def read(self, gpus: Sequence[str]) -> GpuUse:
        """The use of some GPUs, as means over them."""
        busy = self._busy_over_time(gpus)
        # Where that is not read, parts are of however long they are busy.
        mean = 1.0 if busy is None else self._busy(gpus)
        foreign = min(self._readings.mean_over(gpus, "foreign_sm_fraction") or 0.0, mean)
        own = mean - foreign
        # A neighbour's time slices cost the trainer as far as it had work for the GPU in them.
        waited = foreign * min(1.0, own / (1 - foreign)) if foreign < 1 else foreign
        for_job = (own + waited) / mean if mean else 1.0
        parts: dict[str, float] = {}
        total = own + waited
        if total > 0:
            parts[GPU_CONTENTION] = waited / total
            for cause, part in zip((BANDWIDTH, UNOBSERVED_RANK), self._waits_for_ranks(gpus), strict=True):
                parts[cause] = part * (1 - parts[GPU_CONTENTION])
            working = 1 - sum(parts.values())
            parts[GPU_THROTTLED] = working * self._slowed(gpus)
            waits = parts[BANDWIDTH] + parts[UNOBSERVED_RANK]
            cause, freed = self._kernels(gpus, 0.0 if busy is None else own * (1 - waits))
            parts[cause] = freed * (working - parts[GPU_THROTTLED])
        parts[GPU_COMPUTE] = parts.get(GPU_COMPUTE, 0.0) + 1 - sum(parts.values())
        carrying = None if self._asks_for_exchange else self._carrying(gpus)
        parts = {cause: part for cause, part in parts.items() if part > 0}
        exchanging = None if carrying is None else carrying[1]
        active = self._readings.mean_over(gpus, "sm_active_fraction")
        return GpuUse(busy, for_job, parts, self._copying(gpus), exchanging, self._any_busy(gpus), active)

    @property
    def _is_alone(self) -> bool:
        """Whether the job has one rank only, which exchanges nothing."""
        return not self._unseen_ranks and sum(len(host._of_ranks) for host in self._hosts) < 2

    def _any_busy(self, gpus: Sequence[str]) -> tuple[float, float]:
        """Least and most time in which any of them is busy, in multiples of the mean: at the same time or by turns."""
        each = [one for gpu in gpus if (one := self._readings.mean(gpu, "busy_fraction")) is not None]
        return (max(each) / fmean(each), float(len(each))) if any(each) else (1.0, 1.0)

    def _busy(self, gpus: Sequence[str]) -> float:
        """Mean fraction of the time in which they ran kernels; 0 where that could not be read."""
        busy = self._busy_over_time(gpus)
        return 0.0 if busy is None else float(np.mean(busy.values))

    def _waits_for_ranks(self, gpus: Sequence[str]) -> tuple[float, float]:
        """Of the busy time, the parts that go to collectives with ranks that are watched, and with others.

        What no bytes explain is said to be for ranks that nobody watches only as far as it is certainly no computing.
        """
        exchanging = self._exchanging(gpus)
        if not self._unseen_ranks or self._asks_for_exchange or self._exchanges_nothing(gpus):
            return exchanging, 0.0
        certain = self._spinning(gpus, certain=True)
        explained = exchanging if self._carrying(gpus) is not None else 0.0
        return min(exchanging, explained), max(0.0, certain - explained)

    def _exchanges_nothing(self, gpus: Sequence[str]) -> bool:
        """Whether no bytes go over links that were read: such ranks wait for nobody."""
        carrying = self._carrying(gpus)
        return carrying is not None and carrying[1] < thresholds.NO_EXCHANGE and self._counts_pcie(gpus)

    def _exchanging(self, gpus: Sequence[str]) -> float:
        """Of the busy time, the part that goes to collectives, as far as something explains that.

        Ranks wait in them for bytes, or for a rank that is late: its GPU idles, since its host is late, or waits less
        than others. What all have in common beyond that are kernels that use little of a GPU. Many small collectives
        carry next to nothing, but somebody has to ask for each.
        """
        busy = self._busy(gpus)
        others = [(host, rank) for host in self._hosts for rank in host._of_ranks]
        if self._is_alone or not busy:
            return 0.0
        part = self._spinning(gpus)
        carrying = self._carrying(gpus)
        if self._asks_for_exchange or carrying is None:
            return part
        if self._exchanges_nothing(gpus):
            return 0.0
        in_common = min(host._spinning(rank) for host, rank in others)
        others.remove((self, gpus))
        idle = sum(1 - host._busy(rank) for host, rank in others)
        least, most = ((moving + idle) / busy for moving in carrying)
        # Where slow links would not explain it, kernels are small in any case, and likelier so are those in question.
        explained = least if in_common - most >= thresholds.SMALL_KERNELS else most
        return part - max(0.0, in_common - explained)

    def _carrying(self, gpus: Sequence[str]) -> tuple[float, float] | None:
        """The fraction of the time that what their links carry takes, on fast links and on slow ones.

        None if none of them could be read.
        """
        received, sent = self._over_pcie(gpus)
        between = self._readings.mean_over(gpus, "nvlink_sent_bytes_per_second")
        if (sent is None or received is None) and between is None:
            return None
        # What ranks exchange goes both ways, and batches only one.
        moved = max(0.0, min(sent or 0.0, received or 0.0) - thresholds.PCIE_IDLE_BYTES_PER_S)
        between = between or 0.0
        return (
            between / thresholds.FAST_NVLINK_BYTES_PER_S + moved / self._pcie(gpus),
            between / thresholds.SLOW_NVLINK_BYTES_PER_S + moved / thresholds.SLOW_EXCHANGE_BYTES_PER_S,
        )

    def _counts_pcie(self, gpus: Sequence[str]) -> bool:
        """Whether PCIe's bytes were read often enough to meet what is moved now and then."""
        return min((len(self._values(gpu, "pcie_received_bytes_per_second")) for gpu in gpus), default=0) >= _FEW

    def _over_pcie(self, gpus: Sequence[str]) -> list[float | None]:
        """Bytes per second that they receive and send over PCIe; None where that was not read."""
        return [self._readings.mean_over(gpus, f"pcie_{way}_bytes_per_second") for way in ("received", "sent")]

    def _pcie(self, gpus: Sequence[str]) -> float:
        """Bytes per second that their PCIe links carry at most."""
        generation, width = (self._readings.mean_over(gpus, f"pcie_{what}") for what in ("generation", "width"))
        return hardware.pcie_bytes_per_s(generation or 4.0, width or 16.0)

    def _spinning(self, gpus: Sequence[str], *, certain: bool = False) -> float:
        """Of the busy time, the part in which kernels compute next to nothing, as those of collectives do.

        Such a kernel keeps a few multiprocessors and little power busy, and the GPU reads as fully used.

        Args:
            gpus: of a rank.
            certain: where power alone is read, kernels may draw no more than small ones do.
        """
        busy = self._busy(gpus)
        if not busy:
            return 0.0
        active = self._readings.mean_over(gpus, "sm_active_fraction")
        power = self._power(gpus, busy)
        computing = []
        if active is not None:
            spins = thresholds.SM_IN_COLLECTIVE
            computing.append((active / busy - spins) / (thresholds.SM_AT_WORK - spins))
        # Kernels may be small, or need little power: only what both say is a wait, but where somebody asks for it.
        if power is not None and not (computing and self._asks_for_exchange):
            spins = thresholds.POWER_IN_COLLECTIVE
            at_work = self._power_at_work(gpus, least=certain and not computing)
            computing.append((power - spins) / (at_work - spins))
        return 1 - min(1.0, max(0.0, *computing)) if computing else 0.0

    def _power(self, gpus: Sequence[str], busy: float) -> float | None:
        """The part of the power limit that they draw while they are busy; None where that was not read."""
        limit = self._readings.mean_over(gpus, "power_limit_watts")
        watts = [power for gpu in gpus if (power := self._mean_power(gpu)) is not None]
        return (fmean(watts) / limit - (1 - busy) * thresholds.POWER_IDLE) / busy if watts and limit else None

    def _mean_power(self, gpu: str) -> float | None:
        """Watts by what it has used up, since power is read now and then; by that where energy is not counted."""
        rate = self._readings.rate(gpu, "energy_joules_total")
        return self._readings.mean(gpu, "power_watts") if rate is None else rate

    def _power_at_work(self, gpus: Sequence[str], *, least: bool = False) -> float:
        """The part of the power limit that arithmetic draws, or else the least that kernels do.

        Some GPUs show it: their readings are of less than a step.
        At lowered clocks it needs less: it grows with the clock and the square of the voltage that this takes.
        """
        spins = thresholds.POWER_IN_COLLECTIVE
        shown = [power for gpu in gpus if (power := self._power_of_kernels(gpu)) is not None]
        if shown:
            return fmean(shown)
        if least:
            return thresholds.POWER_OF_KERNELS
        return float(spins + (thresholds.POWER_AT_WORK - spins) * (1 - self._slowed(gpus)) ** 2)

    def _power_of_kernels(self, gpu: str) -> float | None:
        """The part of its limit that a GPU draws while it computes; None where its readings tell no moments.

        Those are the readings that are nearer to the highest one than to what a wait in a collective draws.
        """
        limit = self._readings.mean(gpu, "power_limit_watts")
        parts = [watts / limit for watts in self._values(gpu, "power_watts")] if limit else []
        highest = max(parts, default=0.0)
        momentary = self._readings.fact(gpu, "compute_capability") in hardware.MOMENTARY_POWER
        if not momentary or highest < thresholds.POWER_OF_KERNELS:
            return None
        return fmean(part for part in parts if 2 * part >= highest + thresholds.POWER_IN_COLLECTIVE)

    def _slowed(self, gpus: Sequence[str]) -> float:
        """By what part of their time kernels are longer than at the clocks that these GPUs run at otherwise."""
        slowed = []
        for gpu in gpus:
            clocks = self._values(gpu, "sm_clock_hertz")
            held = [self._values(gpu, name) for name in _HELD_DOWN]
            held += [self._values(gpu, "clocks_limited_by_power")] if self._is_capped(gpu) else []
            flags = [any(values[at] for values in held if at < len(values)) for at in range(len(clocks))]
            down = [clock for clock, flag in zip(clocks, flags, strict=True) if flag]
            if not clocks or len(down) < thresholds.GPU_LIMITED_NOW_AND_THEN * len(clocks):
                slowed.append(0.0)
                continue
            usual = self._usual_clock(gpu, [clock for clock, flag in zip(clocks, flags, strict=True) if not flag])
            lost = max(0.0, 1 - fmean(down) / usual) if usual else 0.0
            slowed.append(lost * len(down) / len(clocks))
        return fmean(slowed) if slowed else 0.0

    def _is_capped(self, gpu: str) -> bool:
        """Whether somebody set the power limit below the GPU's own; at its own limit any well-fed GPU runs."""
        limit, own = (self._readings.mean(gpu, f"power_limit_{which}watts") for which in ("", "default_"))
        return limit is not None and own is not None and limit < thresholds.CAPPED_POWER * own

    def _usual_clock(self, gpu: str, free: Sequence[float]) -> float | None:
        """The clock to compare with: its own while nothing held it down, its siblings', or the highest under load."""
        if len(free) >= thresholds.USUAL_CLOCK_READINGS:
            return median(free)
        siblings = [
            fmean(clocks)
            for other in self._all
            if other != gpu and (clocks := self._values(other, "sm_clock_hertz")) and not self._is_held(other)
        ]
        if siblings:
            return median(siblings)
        highest = self._readings.mean(gpu, "sm_clock_max_hertz")
        return None if highest is None else thresholds.CLOCK_UNDER_LOAD * highest

    def _is_held(self, gpu: str) -> bool:
        return any(self._readings.mean(gpu, name) for name in _HELD_DOWN)

    def _kernels(self, gpus: Sequence[str], busy: float) -> tuple[str, float]:
        """What keeps kernels from being faster, and the part of their time that they would not need without it.

        Each unit is held against what it reaches at work: so much of the time its own work takes at least. When one
        limit is gone, the unit with most work left is the next.
        """
        names = ("sm_active", "tensor_active", "dram_bandwidth", "fp32_active")
        found = [self._readings.mean_over(gpus, f"{name}_fraction") for name in names]
        active, tensor, memory, single = (None if one is None or not busy else min(1.0, one / busy) for one in found)
        if active is None or tensor is None or memory is None:
            return GPU_COMPUTE, 0.0
        moving = memory / thresholds.MEMORY_AT_WORK
        ordinary = min(1.0, (single or 0.0) / thresholds.SINGLE_PRECISION_AT_WORK)
        computing = max(tensor / thresholds.TENSOR_CORES_AT_WORK, ordinary)
        ahead = moving >= thresholds.MOST_WORKING_UNIT * computing and moving >= thresholds.GPU_UNIT_MEDIUM
        if (ahead and active >= thresholds.SM_AT_WORK) or (moving >= thresholds.GPU_UNIT_HIGH and moving > computing):
            return MEMORY_BANDWIDTH, 1 - min(1.0, computing)
        if (single or 0.0) >= thresholds.SINGLE_PRECISION and tensor < thresholds.TENSOR_CORES_UNUSED:
            capability = self._readings.fact(gpus[0], "compute_capability")
            name = self._readings.fact(gpus[0], "name") or ""
            faster = hardware.tensor_core_speedup(name, float(capability) if capability else None)
            # Only products of matrices are faster there; they keep these units busy.
            return NO_TENSOR_CORES, 1 - max(1 - ordinary * (1 - 1 / faster), moving)
        # Multiprocessors of which each has much to do draw the power of all; an idle GPU draws some, too.
        idle = thresholds.POWER_IDLE
        drawn = (self._power(gpus, self._busy(gpus)) or idle) - idle
        left = max(active / thresholds.SM_AT_WORK, drawn / (self._power_at_work(gpus) - idle), moving, computing)
        return (LOW_OCCUPANCY, 1 - left) if left < 1 else (GPU_COMPUTE, 0.0)

    def _copying(self, gpus: Sequence[str]) -> tuple[float, float] | None:
        if not self._counts_pcie(gpus):
            return None
        received, sent = self._over_pcie(gpus)
        if received is None or sent is None:
            return None
        moved = max(0.0, received + sent - thresholds.PCIE_IDLE_BYTES_PER_S)
        # What goes both ways may be what ranks exchange.
        copied = moved if self._is_alone else abs(received - sent)
        return min(1.0, copied / self._pcie(gpus)), min(1.0, moved / thresholds.PAGEABLE_BYTES_PER_S)

    def _values(self, gpu: str, name: str) -> Sequence[float]:
        return self._readings.over_time(gpu, name)[1]

    def _busy_over_time(self, gpus: Sequence[str]) -> Counter | None:
        """The mean over some GPUs at each reading."""
        at: dict[int, list[float]] = {}
        for gpu in gpus:
            for time_ns, value in zip(*self._readings.over_time(gpu, "busy_fraction"), strict=True):
                at.setdefault(time_ns, []).append(value)
        if len(at) < 2:
            return None
        times = sorted(at)
        return Counter(np.array(times, dtype=np.float64), np.array([fmean(at[time]) for time in times]))
