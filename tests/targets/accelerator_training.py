"""Trains on PyTorch's test backend with one bottleneck or without it, and is diagnosed.

The host's side is real: a loader, operators, autograd's thread, an optimizer. The device's work is played, at a planned
length, and asynchronous as on a GPU.
"""

# ruff: noqa: TID253
import argparse
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from perfdoctor import diagnose
from tests.targets.played_device import ELEMENTS, PlayedDevice

LAYERS = 6
# Forward and backward kernel of each layer.
FORWARD_MS, BACKWARD_MS = 0.7, 1.4
# In ordinary jobs the loss is printed now and then.
PRINT_EVERY = 10
SAVE_EVERY, SAVED_BYTES = 50, 300 << 20
# What the host may take for the operators of a layer where each layer's result is checked.
CHECKED_MS, MOST_OPERATORS = 0.75, 8


class Numbers(Dataset):
    """Items that take the host a while to compute.

    Args:
        ms: for each.
    """

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        until, total = time.thread_time() + self.ms / 1000, 0
        while time.thread_time() < until:
            total += sum(number * number for number in range(100))
        return torch.full((4,), float(total % 7))


class Layer(torch.nn.Module):
    """A kernel each way, and some operators around it."""

    def __init__(self, job: "Job") -> None:
        super().__init__()
        self.job = job
        self.weights = torch.nn.Parameter(torch.ones(4, device=job.device.torch))

    def forward(self, values):
        for _ in range(self.job.operators):
            values = values * self.weights
            if self.job.tiny_kernels:
                values = self.job.device.work(values, 0.005, 0.005, ELEMENTS)
        values = self.job.device.work(values, self.job.kernel_ms[0], self.job.kernel_ms[1])
        if self.job.checks:
            self.job.device.synchronize()
            if not torch.isfinite(values).all().item():
                raise RuntimeError("not finite")
        return values


class LoopingSGD(torch.optim.SGD):
    """Goes through the parameters one by one, with an operator and a small kernel for each element of its work."""

    def __init__(self, job: "Job", parameters, **settings) -> None:
        super().__init__(parameters, **settings)
        self.job = job

    def step(self, closure=None):
        super().step(closure)
        with torch.no_grad():
            for _ in range(200 if self.job.loops else 0):
                for layer in self.job.model:
                    layer.weights.mul_(1.0)
                    self.job.device.launch(0.0005, ELEMENTS)


def operators_within(device: PlayedDevice, limit_ms: float) -> int:
    """How many operators of a layer the host calls in so long, both ways: for a device to wait for that checks drain.

    More than that and the host would be behind without checks too.
    """
    weights, fastest = torch.ones(4, device=device.torch, requires_grad=True), float("inf")
    for _ in range(30):
        begin = time.perf_counter()
        values = weights * weights
        for _ in range(MOST_OPERATORS - 1):
            values = values * weights
        values.sum().backward()
        fastest = min(fastest, time.perf_counter() - begin)
    return max(2, min(MOST_OPERATORS, int(MOST_OPERATORS * limit_ms / 1000 / fastest)))


class Job:
    """A training job.

    Args:
        device: what it trains on.
        name: of its bottleneck; "" for none.
    """

    def __init__(self, device: PlayedDevice, name: str) -> None:
        self.device = device
        self.kernel_ms = (FORWARD_MS, BACKWARD_MS)
        self.operators = 2
        self.checks = name == "synchronization"
        self.tiny_kernels = name == "small operators"
        self.copies = name == "transfer"
        self.loops = name == "optimizer"
        self.saves = name == "checkpoints"
        if self.tiny_kernels:
            self.operators = 30
        if self.checks:
            self.operators = operators_within(device, CHECKED_MS)
        self.loader = DataLoader(Numbers(30 if name == "input" else 0.3), batch_size=1)
        self.model = torch.nn.Sequential(*(Layer(self) for _ in range(LAYERS)))
        self.optimizer = LoopingSGD(self, self.model.parameters(), lr=1e-6, momentum=0.9, foreach=False)
        self.state = torch.randint(0, 255, (SAVED_BYTES // 8,)) if self.saves else None
        self.steps = 0

    def step(self, batch: torch.Tensor) -> None:
        if self.copies:
            self.device.copy(12, pinned=False)
        loss = self.model(batch.to(self.device.torch)).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        if self.steps % PRINT_EVERY == 0:
            self.device.synchronize()
            print("loss", loss.item(), file=sys.stderr)
        # Not while it is profiled, so that what is traced lacks it for certain.
        if self.saves and self.steps % SAVE_EVERY == 0 and not torch._C._autograd._profiler_enabled():
            self.device.synchronize()
            torch.save(self.state, "state.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--recording")
    parser.add_argument("--job", default="")
    parser.add_argument("--observe", type=int, default=100, help="how many steps")
    options = parser.parse_args()
    torch.manual_seed(1)
    job = Job(PlayedDevice(), options.job)
    call = torch.nn.Module.__call__
    watched = diagnose(steps=options.observe, report=None, json=options.json, recording=options.recording)
    with watched:
        for batch in job.loader:
            job.step(batch)
            if torch.nn.Module.__call__ is call and job.steps > options.observe:
                break
    job.device.synchronize()


if __name__ == "__main__":
    main()
