"""Three loader workers read and unpack members of one zip archive, and a lock lets only one of them do so at a time.

cause: cpu.lock_contention
fixed: each worker opens the archive for itself, without a lock.
"""

import io
import multiprocessing
import zipfile

import numpy as np
import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MEMBERS = 64


def make():
    rng = np.random.default_rng(0)
    with zipfile.ZipFile("data.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(MEMBERS):
            file = io.BytesIO()
            np.save(file, rng.integers(0, 40, (3, 256, 256)).astype(np.uint8))
            archive.writestr(f"{i}.npy", file.getvalue())


class Archive(Dataset):
    def __init__(self):
        self.lock, self.archive = multiprocessing.Lock(), None

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        self.archive = self.archive or zipfile.ZipFile("data.zip")
        if pace.bottleneck():
            with self.lock:
                body = self.archive.read(f"{index % MEMBERS}.npy")
        else:
            body = self.archive.read(f"{index % MEMBERS}.npy")
        return torch.from_numpy(np.load(io.BytesIO(body))[:, ::8, ::8].astype(np.float32) / 40), index % 10


def main():
    make()
    torch.set_num_threads(1)
    loader = DataLoader(Archive(), batch_size=16, shuffle=True, num_workers=3)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(1800, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pace.step()


main()
