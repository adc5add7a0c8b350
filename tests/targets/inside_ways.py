"""More ways to train under ``diagnose()``, each on the model and data of ``inside_training.py``."""

# ruff: noqa: TID253
import itertools
import sys
import threading
import time

import inside_training
import torch
from torch import nn
from torch.utils.data import DataLoader

from perfdoctor import diagnose, phase


def lbfgs(training, options):
    """An optimizer that calls the model and the backward pass itself, several times in a step."""
    optimizer = torch.optim.LBFGS(training.model.parameters(), max_iter=3)
    for images, targets in training.batches():

        def closure(images=images, targets=targets):
            optimizer.zero_grad()
            loss = training.criterion(training.model(images), targets)
            loss.backward()
            return loss

        with inside_training.watched(options) as training.diagnosis:
            training.losses.append(optimizer.step(closure).item())
        training.steps += 1


def scaled(training, options):
    """Mixed precision with a gradient scaler."""
    scaler = torch.amp.GradScaler("cpu")
    with inside_training.watched(options) as training.diagnosis:
        for images, targets in training.batches():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = training.criterion(training.model(images), targets)
            scaler.scale(loss).backward()
            scaler.step(training.optimizer)
            scaler.update()
            training.optimizer.zero_grad()
            training.losses.append(loss.item())
            training.steps += 1


def nested(training, options):
    """A step inside of the loop's own ``with``, one more inside of that, and an exception that the loop catches."""
    with inside_training.watched(options) as training.diagnosis:
        for batch in training.batches():
            try:
                with diagnose(), diagnose() as same:
                    training.step(batch)
                    if training.steps % 10 == 0:
                        raise KeyError("of the user's own")
            except KeyError:
                continue
    assert same.diagnosis == training.diagnosis.diagnosis


def adversarial(training, options):
    """Two models, two optimizers and two loops, each with its own ``diagnose()``, in turn."""
    maker = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))
    optimizer = torch.optim.Adam(maker.parameters())
    batches = training.batches()
    while not training.enough:
        with inside_training.watched(options) as training.diagnosis:
            for batch in itertools.islice(batches, 10):
                training.step(batch)
        with diagnose(steps=3, report="other.html"):
            for images, targets in itertools.islice(batches, 10):
                loss = training.criterion(training.model(images + maker(torch.rand(len(images), 8))), targets)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()


def threads(training, options):
    """A second thread trains a model of its own, and uses ``diagnose()`` for that as well."""
    stop = threading.Event()

    def train():
        model = nn.Linear(64, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        while not stop.is_set():
            with diagnose(), phase("thread"):
                model(torch.rand(4, 64)).sum().backward()
                optimizer.step()
            time.sleep(0.001)

    other = threading.Thread(target=train)
    try:
        for number, batch in enumerate(training.batches()):
            with inside_training.watched(options) as training.diagnosis:
                training.step(batch)
            if number == 0:
                other.start()
    finally:
        stop.set()
        other.join()


def compiled(training, options):
    """A model that was compiled before the loop and an optimizer that is compiled in it; counts what is compiled."""
    from torch._dynamo.testing import CompileCounter

    count = CompileCounter()
    training.model = torch.compile(training.model, backend=count)
    with inside_training.watched(options) as training.diagnosis:
        training.criterion = torch.compile(training.criterion, backend=count)
        for batch in training.batches():
            training.step(batch)
    once = count.frame_count
    for batch in DataLoader(inside_training.Digits(options), 16):
        training.step(batch)
        if training.steps % 5 == 0:
            break
    print(f"compiled {once} {count.frame_count - once}", flush=True)


def started(method):
    """Workers that are started in another way than by forking."""

    def train(training, options):
        loader = DataLoader(
            inside_training.Digits(options), 16, num_workers=1, multiprocessing_context=method, prefetch_factor=4
        )
        with inside_training.watched(options) as training.diagnosis:
            for batch in loader:
                training.step(batch)
                if training.enough:
                    break

    return train


inside_training.WAYS |= {
    "lbfgs": lbfgs,
    "scaled": scaled,
    "nested": nested,
    "adversarial": adversarial,
    "threads": threads,
    "compiled": compiled,
    "spawn": started("spawn"),
    "forkserver": started("forkserver"),
}

if __name__ == "__main__":
    sys.exit(inside_training.main())
