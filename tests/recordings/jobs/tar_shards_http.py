"""An IterableDataset streams tar shards from an HTTP server that pauses before each chunk; one loader worker.

cause: io.network_read
fixed: the server does not pause.
"""

import http.server
import io
import os
import tarfile
import time
import urllib.request

import numpy as np
import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

PAUSE_S, CHUNK = 0.0022, 32 << 10


def shard():
    rng, file = np.random.default_rng(0), io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for i in range(512):
            entry = tarfile.TarInfo(f"{i:06}.npy")
            body = rng.standard_normal((3, 32, 32)).astype(np.float32).tobytes()
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return file.getvalue()


class Store(http.server.BaseHTTPRequestHandler):
    body, pause = b"", 0.0

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        for at in range(0, len(self.body), CHUNK):
            time.sleep(self.pause)
            self.wfile.write(self.body[at : at + CHUNK])

    def log_message(self, *_):
        pass


class Shards(IterableDataset):
    def __init__(self, url):
        self.url = url

    def __iter__(self):
        while True:
            with urllib.request.urlopen(self.url) as response, tarfile.open(fileobj=response, mode="r|") as tar:
                for entry in tar:
                    body = tar.extractfile(entry).read()
                    yield torch.frombuffer(bytearray(body), dtype=torch.float32).view(3, 32, 32), 1


def main():
    Store.body, Store.pause = shard(), PAUSE_S if pace.bottleneck() else 0.0
    server = http.server.HTTPServer(("127.0.0.1", 0), Store)
    if os.fork() == 0:
        server.serve_forever()
    torch.set_num_threads(1)
    loader = DataLoader(Shards(f"http://127.0.0.1:{server.server_port}/shard.tar"), batch_size=32, num_workers=1)
    server.socket.close()
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()


main()
