"""Each sample is fetched from a store some milliseconds away through fsspec, whose event loop has its own thread.

cause: io.network_read
fixed: the samples lie on the disk.
"""

import functools
import http.server
import io
import multiprocessing
import tempfile
import time
from pathlib import Path

import fsspec
import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Store(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(0.004)
        super().do_GET()

    def log_message(self, *_):
        pass


def serve(folder, port):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Store, directory=folder))
    port.put(server.server_address[1])
    server.serve_forever()


class Stored(Dataset):
    def __init__(self, place, labels):
        self.place, self.labels = place, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        with fsspec.open(f"{self.place}/{row}.pt") as file:
            data = file.read()
        return torch.load(io.BytesIO(data)), self.labels[row]


def main():
    torch.set_num_threads(1)
    images, labels = pace.digits()
    folder = tempfile.mkdtemp()
    for row, image in enumerate(images[:400]):
        torch.save(image.clone(), Path(folder, f"{row}.pt"))
    port = multiprocessing.Queue()
    multiprocessing.Process(target=serve, args=(folder, port), daemon=True).start()
    place = f"http://127.0.0.1:{port.get()}" if pace.bottleneck() else folder
    loader = DataLoader(
        Stored(place, labels[:400]), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True,
        multiprocessing_context="spawn",
    )  # fmt: skip
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 96, 3, padding=1), nn.ReLU(),
        nn.Conv2d(96, 96, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6144, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pace.step()


if __name__ == "__main__":
    main()
