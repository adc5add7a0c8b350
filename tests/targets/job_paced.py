"""Trains a small network with an optimizer until it is ended; prints "ready" and its pid once it trains.

A signal makes it slower: USR1 lets each step read items one by one in Python, USR2 makes it fast again.
"""

# ruff: noqa: TID253
import argparse
import os
import signal
import time

import torch
from torch import nn

slower = False


def make_slower(number, frame):
    global slower
    slower = number == signal.SIGUSR1


def prepare(items):
    """Input that is computed in Python, item by item."""
    batch = []
    for item in range(items):
        row = []
        for column in range(64):
            row.append((item * column % 7) / 7)
        batch.append(row)
    return torch.tensor(batch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pause-ms", type=float, default=10.0)
    parser.add_argument("--save-every", type=int, default=0, help="steps between long ones")
    parser.add_argument("--save-s", type=float, default=1.5)
    options = parser.parse_args()
    signal.signal(signal.SIGUSR1, make_slower)
    signal.signal(signal.SIGUSR2, make_slower)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        inputs = prepare(4000 if slower else 16)
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(options.pause_ms / 1000)
        step += 1
        if step == 3:
            print(f"ready {os.getpid()}", flush=True)
        if options.save_every and step % options.save_every == 0:
            time.sleep(options.save_s)


if __name__ == "__main__":
    main()
