"""Trains a small network and logs at each step to somebody who takes his time.

That is a collector that gets long lines through a socket or, with the argument ``queue``, a thread of the trainer's own
behind a queue that holds two lines.
"""

# ruff: noqa: TID253
import logging
import logging.handlers
import multiprocessing
import os
import queue
import socket
import sys
import time

import torch
from torch import nn


def collect(listening):
    connection, _ = listening.accept()
    while connection.recv(16384):
        time.sleep(0.05)


def to_socket():
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    multiprocessing.Process(target=collect, args=(listening,), daemon=True).start()
    return logging.handlers.SocketHandler("127.0.0.1", listening.getsockname()[1])


class Patient(logging.handlers.QueueHandler):
    """Waits for room instead of dropping lines."""

    def enqueue(self, record):
        self.queue.put(record)


class Slow(logging.Handler):
    def emit(self, _):
        time.sleep(0.05)


def to_thread():
    lines = queue.Queue(2)
    logging.handlers.QueueListener(lines, Slow()).start()
    return Patient(lines)


def main():
    torch.set_num_threads(1)
    logger = logging.getLogger("steps")
    logger.setLevel(logging.INFO)
    logger.addHandler(to_thread() if "queue" in sys.argv else to_socket())
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, targets = torch.rand(512, 256), torch.randint(0, 10, (512,))
    first = True
    while True:
        for _ in range(4):
            loss = nn.functional.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        logger.info("loss %f %s", loss.item(), "." * 60_000)
        if first:
            first = False
            print(f"ready {os.getpid()}", flush=True)


if __name__ == "__main__":
    main()
