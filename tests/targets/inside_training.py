"""Trains on random digits under ``diagnose()`` in the manner that a test asks for; prints the losses' exact sum.

The ways to write the loop are those that users have: around a step, around the loop, as a decorator, and so on.
"""

# ruff: noqa: TID253
import argparse
import gc
import json
import os
import sys
import time
import warnings

import torch
from leaving import leave_group
from torch import nn
from torch.utils.data import DataLoader, Dataset

from perfdoctor import diagnose, phase

CALL = torch.nn.Module.__call__


class Digits(Dataset):
    """Random digits; every item costs some time."""

    def __init__(self, options):
        self.options = options

    def __len__(self):
        return self.options.items

    def __getitem__(self, index):
        until = time.perf_counter() + self.options.item_ms / 1000
        while time.perf_counter() < until:
            pass
        if self.options.way == "worker":
            with diagnose():
                pass
        generator = torch.Generator().manual_seed(index)
        return torch.rand(64, generator=generator), index % 10


class Training:
    """A model, its optimizers, and one step of training in several manners."""

    def __init__(self, options):
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.options = options
        self.model = nn.Sequential(nn.Linear(64, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 10))
        if options.ranks:
            torch.distributed.init_process_group("gloo")
            self.model = nn.parallel.DistributedDataParallel(self.model)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.second = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.steps, self.losses, self.times = 0, [], []
        self.start = time.monotonic()
        self.diagnosis = None

    def loader(self):
        method = "fork" if self.options.workers else None
        return DataLoader(
            Digits(self.options), 16, num_workers=self.options.workers, multiprocessing_context=method, shuffle=True
        )

    def step(self, batch):
        # Nothing is moved.
        images, targets = (one.to("cpu") for one in batch)
        loss = self.criterion(self.model(images), targets)
        loss.backward()
        if self.options.way != "accumulate" or self.steps % 2:
            self.optimizer.step()
            self.optimizer.zero_grad()
        if self.options.way == "two":
            self.criterion(self.model(images), targets).backward()
            self.second.step()
            self.second.zero_grad()
        if self.options.collect:
            gc.collect()
        self.losses.append(loss.item())
        self.steps += 1
        self.times.append(time.perf_counter())
        if self.steps == 1:
            print(f"ready {os.getpid()}", flush=True)

    @property
    def enough(self):
        if self.options.steps:
            return self.steps >= self.options.steps
        # Watched: it has detached again.
        if self.options.observe and self.steps > 20 and torch.nn.Module.__call__ is CALL:
            return True
        return time.monotonic() - self.start > self.options.seconds

    def validate(self):
        self.model.eval()
        with torch.no_grad():
            for images, _ in DataLoader(Digits(self.options), 16):
                self.model(images)
        self.model.train()

    def batches(self):
        while not self.enough:
            for batch in self.loader():
                yield batch
                if self.enough:
                    break


def watched(options):
    files = {"json": options.json, "recording": options.recording}
    return diagnose(steps=options.observe, report=options.report or None, **files)


def by_step(training, options):
    while not training.enough:
        for batch in training.loader():
            with watched(options) as doctor:
                training.step(batch)
            if options.way == "fork" and training.steps == 5:
                in_child()
            if training.enough:
                break
        if options.validate:
            training.validate()
    training.diagnosis = doctor


def by_loop(training, options):
    with watched(options) as training.diagnosis:
        while not training.enough:
            for batch in training.loader():
                training.step(batch)
                if training.enough:
                    break
            if options.validate:
                training.validate()
        if options.way == "raise":
            raise ValueError("of the user's own")
        if options.way == "exit":
            sys.exit(3)


def without_loader(training, options):
    """The script's own hooks come after perfdoctor's, which are taken out before them."""
    from torch.optim import optimizer

    batch = torch.rand(16, 64), torch.zeros(16, dtype=torch.long)
    handles = []
    with watched(options) as training.diagnosis:
        while not training.enough:
            with phase("augment"):
                time.sleep(0.002)
            training.step(batch)
            if not handles:
                handles = [
                    optimizer.register_optimizer_step_pre_hook(lambda *_: None),
                    optimizer.register_optimizer_step_post_hook(lambda *_: None),
                ]
    for handle in handles:
        handle.remove()


def reinforced(training, options):
    """One step is some play, and then four steps of the optimizer on it."""
    batch = torch.rand(16, 64), torch.zeros(16, dtype=torch.long)
    while not training.enough:
        with watched(options) as training.diagnosis:
            time.sleep(0.008)
            for _ in range(4):
                training.step(batch)


def criticised(training, options):
    """One step is three turns of one optimizer and one of the other."""
    batch = torch.rand(16, 64), torch.zeros(16, dtype=torch.long)
    training.diagnosis = watched(options)
    with training.diagnosis:
        while not training.enough:
            for _ in range(3):
                time.sleep(0.003)
                training.step(batch)
            training.criterion(training.model(batch[0]), batch[1]).backward()
            training.second.step()


def decorated(training, options):
    training.diagnosis = watched(options)
    step = training.diagnosis(training.step)
    for batch in training.batches():
        step(batch)


def told(training, options):
    """A step is two batches, as the script says, or forgets to say."""
    training.diagnosis = watched(options)
    training.diagnosis.start()
    for number, batch in enumerate(training.batches()):
        training.step(batch)
        if number % 2 and options.way == "told":
            training.diagnosis.step()
    training.diagnosis.stop()


def in_child():
    pid = os.fork()
    if not pid:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                with diagnose():
                    torch.nn.Linear(2, 2)(torch.rand(2)).sum().backward()
        print(f"warned {len(caught)}", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)


WAYS = {
    "loop": by_loop,
    "raise": by_loop,
    "exit": by_loop,
    "decorator": decorated,
    "synthetic": without_loader,
    "reinforced": reinforced,
    "criticised": criticised,
    "told": told,
    "forgotten": told,
}


def entries():
    """What perfdoctor may have changed in torch."""
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    return [
        torch.nn.Module.__call__,
        torch.autograd.backward,
        torch.autograd.grad,
        torch.Tensor.to,
        torch.compile,
        torch.autograd.profiler.profile._prepare_trace,
        DataLoader.__iter__,
        dataloader._BaseDataLoaderIter.__next__,
        torch.distributed.all_reduce,
        list(optimizer._global_optimizer_pre_hooks),
        list(optimizer._global_optimizer_post_hooks),
        list(gc.callbacks),
        [list(found) for found in compiling()],
    ]


def compiling():
    """Whom torch calls when it compiles."""
    callback = sys.modules.get("torch._dynamo.callback")
    handler = callback.callback_handler if callback else None
    return (handler.start_callbacks, handler.end_callbacks) if handler else ((), ())


def still_called(training, options):
    """The functions of perfdoctor's that are called in a step, by name."""
    called = []

    def note(frame, event, _):
        if event == "call" and frame.f_globals["__name__"].startswith("perfdoctor"):
            called.append(frame.f_code.co_name)

    sys.setprofile(note)
    with watched(options):
        training.step(next(iter(training.loader())))
    sys.setprofile(None)
    return called


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", default="step")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--observe", type=int, default=None)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--item-ms", type=float, default=0.0)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--collect", action="store_true")
    parser.add_argument("--ranks", action="store_true")
    parser.add_argument("--report", default="")
    parser.add_argument("--json")
    parser.add_argument("--recording")
    parser.add_argument("--times", default="")
    return parser.parse_args()


def main():
    options = parse()
    before = entries()
    training = Training(options)
    try:
        WAYS.get(options.way, by_step)(training, options)
    finally:
        print(f"losses {torch.tensor(training.losses, dtype=torch.float64).sum().item().hex()}", flush=True)
        print(f"clean {int(entries() == before)}", flush=True)
    if options.way == "step":
        print("called", *still_called(training, options), flush=True)
    if options.times:
        with open(options.times, "w") as file:
            json.dump(training.times, file)
    # Of several ranks, one gets the diagnosis.
    until = time.monotonic() + (0 if options.ranks else 60)
    while options.observe and training.diagnosis.diagnosis is None and time.monotonic() < until:
        time.sleep(0.1)
    told = training.diagnosis.diagnosis
    print(f"told {told['verdict']['cause'] if told else None}", flush=True)
    if options.ranks:
        leave_group()


if __name__ == "__main__":
    main()
