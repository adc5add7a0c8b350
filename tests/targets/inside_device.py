"""Trains under ``diagnose()`` on an accelerator: the host fetches batches while the device works.

The device is torch's test backend with ``--real``, and else a stand-in at the seam to it.
"""

# ruff: noqa: TID253
import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from perfdoctor import diagnose
from perfdoctor.probes.inside import device_clock, isolated_phases, patches
from tests.builders.stand_ins import MS, Stream
from tests.targets.played_device import PlayedDevice

DATA_MS, FORWARD_MS, BACKWARD_MS = 12, 8, 16
CALL = torch.nn.Module.__call__


class Slow(Dataset):
    """Each item takes a while, and no core."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(DATA_MS / 1000)
        return torch.ones(4)


class StandIn(Stream):
    """The stand-in, whose tensors lie on the host."""

    torch = torch.device("cpu")

    def __init__(self):
        super().__init__()
        for module in (device_clock, isolated_phases, patches):
            module.current_accelerator = lambda: self

    def keep_up(self):
        """A device's queue is bounded: the host is at most one step ahead."""
        behind = self.end_ns - time.monotonic_ns() - (FORWARD_MS + BACKWARD_MS) * MS
        time.sleep(max(0, behind) / 1e9)


class Real(PlayedDevice):
    """The test backend.

    Attributes:
        drains: how often the host waited for all of its work.
    """

    def __init__(self):
        super().__init__()
        self.drains = 0
        self.broken = ""
        self.last = torch.Event(device=self.torch)
        self.last.record()
        drain = torch.accelerator.synchronize

        def counted(*arguments):
            self.drains += 1
            drain(*arguments)

        torch.accelerator.synchronize = counted

    def drain(self):
        """Waits for all work."""
        torch.accelerator.synchronize()

    def keep_up(self):
        """As above."""
        before, self.last = self.last, torch.Event(device=self.torch)
        self.last.record()
        before.synchronize()


class OnDevice(torch.autograd.Function):
    """Asks the device for work, as a kernel's launch does."""

    @staticmethod
    def forward(context, values, device):
        context.device = device
        device.launch(FORWARD_MS)
        return values.clone()

    @staticmethod
    def backward(context, gradients):
        context.device.launch(BACKWARD_MS)
        return gradients, None


class Model(torch.nn.Module):
    """One operation on the device."""

    def __init__(self, device):
        super().__init__()
        self.device = device
        self.weights = torch.nn.Parameter(torch.ones(4, device=device.torch))

    def forward(self, batch):
        return OnDevice.apply(batch.to(self.device.torch) * self.weights, self.device)


def idle_drain_s(device):
    """How long it takes to wait for a device that has nothing to do."""
    device.drain()
    begun = time.perf_counter()
    for _ in range(10):
        device.drain()
    return (time.perf_counter() - begun) / 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--broken-after", type=int, default=0)
    parser.add_argument("--move", action="store_true", help="convert 16 MB in each step, as a copy to a device would")
    options = parser.parse_args()
    device = Real() if options.real else StandIn()
    images, moved = torch.ones(4_000_000), []
    model, steps, drained = Model(device), 0, 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with diagnose(steps=60, report=None, json=options.json, profile=0) as doctor:
        for batch in DataLoader(Slow(), 1):
            before = device.drains
            if options.move:
                begun = time.perf_counter()
                images.to(torch.float64) if not options.real else images.to(device.torch)
                moved.append(time.perf_counter() - begun)
            model(batch).sum().backward()
            optimizer.step()
            device.keep_up()
            steps += 1
            drained += device.drains > before
            if options.broken_after and steps == options.broken_after:
                device.broken = "the device is lost"
            if torch.nn.Module.__call__ is CALL and steps > 20:
                break
    if not device.broken:
        print(f"drain_s {idle_drain_s(device)}")
    print(f"moved {statistics.median(moved or [0])}")
    print(f"clean {int('to' not in vars(torch.Tensor) and 'cuda' not in vars(torch.Tensor))}")
    print(f"drained {drained}")
    print(f"steps {steps}", flush=True)
    until = time.monotonic() + 60
    while doctor.diagnosis is None and time.monotonic() < until:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
