"""Trains a small network on digits until it is ended; prints "ready" and its pids once it trains.

The options plant what a test wants to see: how long a step takes, loader workers, more threads, files that are read.
"""

# ruff: noqa: TID253
import argparse
import os
import subprocess
import sys
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DECODER = """
import sys, time
while True:
    until = time.perf_counter() + float(sys.argv[1]) / 1000
    while time.perf_counter() < until:
        pass
    sys.stdout.buffer.write(bytes(64))
    sys.stdout.flush()
"""


class Digits(Dataset):
    """Random digits; every item costs some time, and may be read from a file with an odd name."""

    def __init__(self, options):
        self.options = options
        self.told = False
        self.decoder = None

    def __len__(self):
        return self.options.items

    def __getitem__(self, index):
        if not self.told and self.options.workers:
            self.told = True
            print(f"worker {os.getpid()}", flush=True)
        if self.options.read:
            file = os.open(self.options.read, os.O_RDONLY)
            os.read(file, 1 << 20)
            os.close(file)
        if self.options.decoder_ms:
            command = (sys.executable, "-c", DECODER, str(self.options.decoder_ms))
            self.decoder = self.decoder or subprocess.Popen(command, stdout=subprocess.PIPE)
            self.decoder.stdout.read(64)
        if self.options.wait_ms:
            time.sleep(self.options.wait_ms / 1000)
        until = time.perf_counter() + self.options.item_ms / 1000
        while time.perf_counter() < until:
            pass
        generator = torch.Generator().manual_seed(index)
        return torch.rand(64, generator=generator), index % 10


def descend(model):
    """By hand: an optimizer of torch would import torch.compile, which takes as long as torch itself."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad
            parameter.grad = None


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--item-ms", type=float, default=0.0, help="compute for every item")
    parser.add_argument("--wait-ms", type=float, default=0.0, help="wait for every item: takes no core from anybody")
    parser.add_argument("--decoder-ms", type=float, default=0.0, help="each reader's own process computes per item")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--pause-ms", type=float, default=0.0, help="sleep in every step")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--start", default="fork", help="how workers are started")
    parser.add_argument("--idle-threads", type=int, default=0)
    parser.add_argument("--read", default="", help="a file that is read for every item")
    return parser.parse_known_args()[0]


def main():
    options = parse()
    torch.set_num_threads(1)
    for _ in range(options.idle_threads):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    method = options.start if options.workers else None
    loader = DataLoader(Digits(options), options.batch, num_workers=options.workers, multiprocessing_context=method)
    model = nn.Sequential(nn.Linear(64, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 10))
    end = time.monotonic() + options.seconds
    first = True
    while time.monotonic() < end:
        for images, targets in loader:
            loss = nn.functional.cross_entropy(model(images), targets)
            loss.backward()
            descend(model)
            time.sleep(options.pause_ms / 1000)
            if first:
                first = False
                print(f"ready {os.getpid()}", flush=True)
            if time.monotonic() >= end:
                break


if __name__ == "__main__":
    main()
