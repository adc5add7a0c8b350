"""Samples are fetched one by one over HTTP from a store that takes its time to answer."""

import http.client
import http.server
import io
import multiprocessing
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

SIZE, SAMPLES = 48, 512


class Store(http.server.BaseHTTPRequestHandler):
    """Answers ``GET /INDEX`` with a JPEG file, after a delay."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    files: tuple[bytes, ...] = ()
    delay_s = 0.0

    def do_GET(self) -> None:
        data = self.files[int(self.path[1:])]
        time.sleep(self.delay_s)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Stays quiet."""


def serve(server: http.server.ThreadingHTTPServer, parent: int) -> None:
    """Answers requests until the training process is gone."""
    server.timeout = 1.0
    while os.getppid() == parent:
        server.handle_request()


class Remote(torch.utils.data.Dataset):
    """Samples in the store, over one connection per worker."""

    def __init__(self, port: int, labels: np.ndarray) -> None:
        self.port, self.labels = port, labels
        self.connection: http.client.HTTPConnection | None = None

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port)
        self.connection.request("GET", f"/{index}")
        data = self.connection.getresponse().read()
        image = np.asarray(Image.open(io.BytesIO(data)), np.float32) / 255
        return torch.from_numpy(image).permute(2, 0, 1), int(self.labels[index])


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    pieces, labels = common.crops(SAMPLES, SIZE)
    Store.files, Store.delay_s = tuple(common.jpegs(pieces)), 0.006 if run.bottleneck else 0.0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    context = multiprocessing.get_context("fork")
    context.Process(target=serve, args=(server, os.getpid()), name="store", daemon=True).start()
    loader = torch.utils.data.DataLoader(
        Remote(server.server_port, labels),
        batch_size=16,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, targets in run.steps(loader):
        loss = nn.functional.cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
