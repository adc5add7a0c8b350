"""Trains under ``diagnose()`` on a stand-in for an accelerator: the host fetches batches while the device works."""

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

DATA_MS, FORWARD_MS, BACKWARD_MS = 12, 8, 16
CALL = torch.nn.Module.__call__
STREAM = Stream()


class Slow(Dataset):
    """Each item takes a while, and no core."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(DATA_MS / 1000)
        return torch.ones(4)


class OnDevice(torch.autograd.Function):
    """Asks the device for work, as a kernel's launch does."""

    @staticmethod
    def forward(context, values):
        STREAM.launch(FORWARD_MS)
        return values.clone()

    @staticmethod
    def backward(context, gradients):
        STREAM.launch(BACKWARD_MS)
        return gradients


class Model(torch.nn.Module):
    """One operation on the device."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.ones(4))

    def forward(self, batch):
        return OnDevice.apply(batch * self.weights)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--broken-after", type=int, default=0)
    parser.add_argument("--move", action="store_true", help="convert 16 MB in each step, as a copy to a device would")
    options = parser.parse_args()
    for module in (device_clock, isolated_phases, patches):
        module.current_accelerator = lambda: STREAM
    images, moved = torch.ones(4_000_000), []
    model, steps, drained = Model(), 0, 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with diagnose(steps=60, report=None, json=options.json, profile=0) as doctor:
        for batch in DataLoader(Slow(), 1):
            before = STREAM.drains
            if options.move:
                begun = time.perf_counter()
                images.to(torch.float64)
                moved.append(time.perf_counter() - begun)
            model(batch).sum().backward()
            optimizer.step()
            # A device's queue is bounded: the host is at most one step ahead.
            behind = STREAM.end_ns - time.monotonic_ns() - (FORWARD_MS + BACKWARD_MS) * MS
            time.sleep(max(0, behind) / 1e9)
            steps += 1
            drained += STREAM.drains > before
            if options.broken_after and steps == options.broken_after:
                STREAM.broken = "the device is lost"
            if torch.nn.Module.__call__ is CALL and steps > 20:
                break
    print(f"moved {statistics.median(moved or [0])}")
    print(f"clean {int('to' not in vars(torch.Tensor) and 'cuda' not in vars(torch.Tensor))}")
    print(f"drained {drained}")
    print(f"steps {steps}", flush=True)
    until = time.monotonic() + 60
    while doctor.diagnosis is None and time.monotonic() < until:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
