"""What the scripts that train in a framework have in common: their data, a slow optimizer, options, and the end."""

# ruff: noqa: TID253
import argparse
import os
import time

import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset


def busy(ms):
    """Python for some time: nearly none of it goes into reading the clock, which is nobody's code."""
    until = time.perf_counter() + ms / 1000
    while time.perf_counter() < until:
        sum(number * number for number in range(500))


class Digits(Dataset):
    """Random digits; every item costs some time."""

    def __init__(self, items, item_ms):
        self.items, self.item_ms = items, item_ms

    def __len__(self):
        return self.items

    def __getitem__(self, index):
        busy(self.item_ms)
        return torch.rand(64, generator=torch.Generator().manual_seed(index)), index % 10


class Stream(IterableDataset):
    """The same without a length."""

    def __init__(self, items, item_ms):
        self.digits = Digits(items, item_ms)

    def __iter__(self):
        return (self.digits[index] for index in range(self.digits.items))


class Slow(torch.optim.SGD):
    """An optimizer that takes its time."""

    ms = 0.0

    def step(self, closure=None):
        loss = super().step(closure)
        busy(self.ms)
        return loss


def network():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", default="lightning.pytorch")
    parser.add_argument("--items", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=0, help="0: until perfdoctor has detached")
    parser.add_argument("--observe", type=int, default=60)
    parser.add_argument("--item-ms", type=float, default=0.0)
    parser.add_argument("--optimizer-ms", type=float, default=0.0)
    parser.add_argument("--step-ms", type=float, default=0.0, help="in the script's own step, outside of any module")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--profile", type=int, default=0)
    parser.add_argument("--json")
    parser.add_argument("--recording")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    Slow.ms = options.optimizer_ms
    return options


def wanted(options):
    """Arguments for ``diagnose()``."""
    files = {"report": None, "json": options.json, "recording": options.recording}
    return {"steps": options.observe, "profile": options.profile, **files}


def data(options):
    return (Stream if options.stream else Digits)(options.items, options.item_ms)


def enough(options, steps, call):
    """Whether nothing more is to be seen: torch is as it was before it was watched."""
    return not options.steps and steps > 20 and nn.Module.__call__ is call


def tell(callback, call, model):
    """Prints what a test wants to know: the weights, and whether torch is as it was."""
    total = sum(parameter.detach().double().sum() for parameter in model.parameters())
    print(f"weights {total.item().hex()}", flush=True)
    print(f"clean {int(nn.Module.__call__ is call)}", flush=True)
    # Of several ranks, the first one gets the diagnosis.
    gets_one = "PERFDOCTOR_DISABLE" not in os.environ and os.environ.get("LOCAL_RANK", "0") == "0"
    until = time.monotonic() + (60 if gets_one else 0)
    while callback.diagnosis is None and nn.Module.__call__ is call and time.monotonic() < until:
        time.sleep(0.1)
    print(f"told {callback.diagnosis['verdict']['cause'] if callback.diagnosis else None}", flush=True)
