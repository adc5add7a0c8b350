"""Trains a small network and sends a long line of log at each step to a collector of its own, which takes its time."""

# ruff: noqa: TID253
import logging
import logging.handlers
import multiprocessing
import os
import socket
import time

import torch
from torch import nn


def collect(listening):
    connection, _ = listening.accept()
    while connection.recv(16384):
        time.sleep(0.05)


def main():
    torch.set_num_threads(1)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    multiprocessing.Process(target=collect, args=(listening,), daemon=True).start()
    logger = logging.getLogger("steps")
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.handlers.SocketHandler("127.0.0.1", listening.getsockname()[1]))
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
