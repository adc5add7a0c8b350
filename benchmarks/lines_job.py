"""A training that writes down when it is at which line: KIND FILE; ended by SIGTERM, which writes the file."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch  # noqa: TID253
from torch import nn  # noqa: TID253

KIND, FILE = sys.argv[1:]
WIDTH, BATCH = {"short": (256, 32), "medium": (768, 128), "long": (2048, 256)}.get(KIND, (512, 64))
EVERY = {"fsync": 10, "program": 8}.get(KIND, 1)
reached: list[tuple[int, str]] = []


def end(*_: object) -> None:
    """Writes down what was reached when."""
    Path(FILE).write_text(json.dumps(reached))
    os._exit(0)


def reach(part: str) -> None:
    """What is done from now on."""
    reached.append((time.monotonic_ns(), part))


def prepare(rows: torch.Tensor) -> torch.Tensor:
    """Many small operations."""
    return torch.stack([row * 1.5 for row in rows])


def count(logits: torch.Tensor) -> dict[int, int]:
    """The interpreter's own work."""
    found: dict[int, int] = {}
    for best in logits.argmax(1).tolist() * 6:
        found[best] = found.get(best, 0) + 1
    return found


def wait() -> None:
    """What holds up some kinds of jobs now and then."""
    if KIND == "pause":
        time.sleep(random.uniform(0.002, 0.004))
    elif KIND == "fsync":
        log.write("x" * 100)
        log.flush()
        os.fsync(log.fileno())
    elif KIND == "program":
        for _ in range(16):
            subprocess.run(["true"], check=True)


def main() -> None:
    """Trains until it is ended."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    rows, targets = torch.randn(BATCH, WIDTH), torch.randint(0, 10, (BATCH,))
    step = 0
    while True:
        step += 1
        reach("prepare")
        inputs = prepare(rows)
        reach("forward")
        logits = model(inputs)
        reach("loss")
        loss = nn.functional.cross_entropy(logits, targets)
        reach("zero_grad")
        optimizer.zero_grad()
        reach("backward")
        torch.autograd.backward(loss)
        reach("optimizer")
        optimizer.step()
        reach("count")
        count(logits)
        reach("wait")
        if step % EVERY == 0:
            wait()


torch.set_num_threads(1)
signal.signal(signal.SIGTERM, end)
log = Path(f"{FILE}.log").open("w")  # noqa: SIM115
main()
