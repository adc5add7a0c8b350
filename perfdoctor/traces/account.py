"""Where a rank's wall time went, by cause: the same causes as everywhere, from exact intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perfdoctor.amounts import Amounts
from perfdoctor.causes import UNATTRIBUTED
from perfdoctor.traces.device import DeviceTime, split_devices
from perfdoctor.traces.host import Host
from perfdoctor.traces.host_only import split_host
from perfdoctor.traces.idle import Gaps, Reason, explain_idle
from perfdoctor.traces.intervals import Intervals
from perfdoctor.traces.kernels import Work, sort_work
from perfdoctor.traces.model import Int8s, Int64s, Trace
from perfdoctor.traces.steps import Window, find_window
from perfdoctor.traces.waiting import split_communication

CAUSE_OF_WORK = {
    Work.ARITHMETIC: "gpu.compute",
    Work.SINGLE_PRECISION: "gpu.no_tensor_cores",
    Work.MEMORY: "gpu.memory_bandwidth",
    Work.SMALL: "gpu.low_occupancy",
    Work.COPY: "gpu.host_transfer",
}
CAUSE_OF_IDLENESS = {
    Reason.LOADING: "cpu.input_preprocessing",
    Reason.SAVING: "io.checkpoint_write",
    Reason.ALLOCATING: "gpu.memory_pressure",
    Reason.SYNCHRONIZING: "cpu.synchronization",
    Reason.COPYING: "gpu.host_transfer",
    Reason.COLLECTIVE: "communication.unattributed_wait",
    Reason.DISPATCHING: "cpu.kernel_launch",
    Reason.OWN_CODE: "cpu.python_overhead",
    Reason.SWITCHING: "gpu.low_occupancy",
    Reason.SETTING_UP: UNATTRIBUTED,
    Reason.UNSEEN: UNATTRIBUTED,
}
# The window is cut into this many equal slices, to see how much the account varies from one to the next.
SLICES = 20
# A device with less work than this beside the busiest one only helps out.
_HELPER = 0.01


@dataclass
class RankAccount:
    """One trace, accounted for.

    Attributes:
        slices: nanoseconds by cause in each slice of the window, over all devices.
        devices: the devices' time; empty for a job on the CPU.
        gaps: their idle times, in the same order.
        work: a ``Work`` for each device event.
    """

    trace: Trace
    window: Window
    host: Host
    work: Int8s
    devices: list[DeviceTime] = field(default_factory=list)
    gaps: list[Gaps] = field(default_factory=list)
    slices: list[Amounts[str]] = field(default_factory=lambda: [Amounts() for _ in range(SLICES)])

    @property
    def shares(self) -> Mapping[str, float]:
        """Cause to fraction of the window; sums to 1, empty where nothing was accounted for."""
        return Amounts.summed(self.slices).fractions()

    def idle_for(self, reason: Reason) -> float:
        """Fraction of the devices' time that was idle for a reason."""
        length = self.window.length * max(len(self.gaps), 1)
        return float(sum(gaps.reasons[reason].sum() for gaps in self.gaps)) / max(length, 1)

    def book(self, cause: str, times: Intervals) -> None:
        """Books a set of times on a cause."""
        edges = np.linspace(self.window.start, self.window.end, SLICES + 1).astype(np.int64)
        for amounts, amount in zip(self.slices, times.within(edges[:-1], edges[1:]), strict=True):
            if amount:
                amounts[cause] += float(amount)

    def book_points(self, cause: str, times: Int64s, amounts: npt.NDArray[np.float64]) -> None:
        """Books amounts, each in the slice in which it begins."""
        length = max(self.window.length, 1)
        places = np.clip((times - self.window.start) * SLICES // length, 0, SLICES - 1)
        summed = np.bincount(places, weights=amounts, minlength=SLICES)
        for slice_, amount in zip(self.slices, summed, strict=True):
            if amount > 0:
                slice_[cause] += float(amount)


def account_for(trace: Trace) -> RankAccount:
    """Accounts for all wall time of a trace."""
    window = find_window(trace)
    host = Host(trace, window.steps)
    account = RankAccount(trace, window, host, sort_work(trace))
    if not len(trace.device):
        for cause, times in split_host(trace, host, window).items():
            account.book(cause, times)
        return account
    account.devices = _at_work(split_devices(trace, account.work, window))
    for device in account.devices:
        gaps = explain_idle(trace, host, device)
        account.gaps.append(gaps)
        _book_device(account, device, gaps)
    return account


def _book_device(account: RankAccount, device: DeviceTime, gaps: Gaps) -> None:
    for work, cause in CAUSE_OF_WORK.items():
        account.book(cause, device.alone[work])
    for cause, (times, amounts) in split_communication(account.trace, account.work, device).items():
        account.book_points(cause, times, amounts)
    for reason, amounts in gaps.reasons.items():
        account.book_points(CAUSE_OF_IDLENESS[reason], gaps.start, amounts)


def _at_work(devices: list[DeviceTime]) -> list[DeviceTime]:
    most = max((device.busy.total for device in devices), default=0)
    return [device for device in devices if device.busy.total >= _HELPER * most]
