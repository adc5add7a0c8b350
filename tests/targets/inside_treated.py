"""Trains under ``diagnose(treat=…)`` with a planted setting that slows it down; says what became of the settings."""

# ruff: noqa: TID253
import argparse
import gc
import json
import time

import torch
from torch import nn
from torch.optim import optimizer as optimizers

from perfdoctor import diagnose

# Elementwise operations on pieces that many threads share: how many there are does not change what comes out.
WIDTH, CHAIN = 300_000, 3


class Descent(torch.optim.Optimizer):
    """Plain gradient descent, without options that could be tried."""

    def __init__(self, params):
        super().__init__(params, {"lr": 1e-3})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for one in group["params"]:
                one.sub_(one.grad, alpha=group["lr"])


class Waves(nn.Module):
    """Some elementwise operations with a parameter."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, value):
        for _ in range(CHAIN):
            value = value * self.scale + 0.1
        return value


def settings():
    """Whatever a trial may change in this job, and then what perfdoctor itself has put in."""
    rarely = gc.collect.__module__.endswith(".switches")
    return [
        (torch.get_num_threads(), gc.get_threshold(), gc.get_freeze_count(), gc.isenabled(), rarely),
        (gc.collect, torch.set_anomaly_enabled, torch.is_anomaly_enabled(), torch.get_float32_matmul_precision()),
        (list(optimizers._global_optimizer_pre_hooks), list(optimizers._global_optimizer_post_hooks)),
    ]


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--report")
    parser.add_argument("--losses", default="losses.json")
    parser.add_argument("--way", choices=["step", "loop"], default="loop")
    parser.add_argument("--treat", default="True")
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--objects", type=int, default=0)
    parser.add_argument("--collect", action="store_true")
    parser.add_argument("--raise-changed", action="store_true")
    parser.add_argument("--steps", type=int, default=0)
    return parser.parse_args()


class Training:
    """One model, trained on one batch."""

    def __init__(self, options):
        self.options = options
        self.kept = [[number] for number in range(options.objects)]
        self.model = Waves(options.width)
        self.optimizer = Descent(self.model.parameters())
        self.batch = torch.linspace(0, 1, options.width)
        self.losses, self.seen = [], set()
        self.usual = settings()

    def step(self):
        now = settings()
        if now[0] != self.usual[0]:
            self.seen.add("inside")
            if self.options.raise_changed:
                raise ValueError("of the user's own")
        loss = self.model(self.batch)[::1000].sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.options.collect:
            gc.collect()
        self.losses.append(loss.item())

    def look_outside(self):
        if settings()[0] != self.usual[0]:
            self.seen.add("outside")

    def enough(self, doctor, until):
        if self.options.steps:
            return len(self.losses) >= self.options.steps
        return doctor.diagnosis is not None or time.monotonic() > until


def train(training, doctor):
    until = time.monotonic() + 150
    if training.options.way == "loop":
        with doctor:
            while not training.enough(doctor, until):
                training.step()
                doctor.step()
    while not training.enough(doctor, until):
        with doctor:
            training.step()
        training.look_outside()


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    training = Training(options)
    treat = {"True": True, "False": False}.get(options.treat, options.treat)
    files = {"report": options.report, "json": options.json}
    doctor = diagnose(steps=40, profile=0, treat=treat, treat_minutes=options.minutes, **files)
    try:
        train(training, doctor)
    except ValueError as error:
        print("raised", error)
        print("undone", int(settings()[:2] == training.usual[:2]), flush=True)
    else:
        print("clean", int(settings() == training.usual), flush=True)
    print("changed", ",".join(sorted(training.seen)) or "nothing", flush=True)
    with open(options.losses, "w") as file:
        json.dump([loss.hex() for loss in training.losses], file)


if __name__ == "__main__":
    main()
