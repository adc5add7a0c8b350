"""Three loader workers take one lock of a file (filelock) around each sample that they decompress.

cause: cpu.lock_contention
fixed: no lock.
"""

import contextlib
import tempfile
import zlib
from pathlib import Path

import filelock
import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Packed(Dataset):
    def __init__(self, images, labels, lock):
        self.packed = [zlib.compress(image.numpy().tobytes() * 3000, 9) for image in images]
        self.labels, self.lock = labels, lock

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        with filelock.FileLock(self.lock) if pace.bottleneck() else contextlib.nullcontext():
            data = bytearray(zlib.decompress(self.packed[row]))
        return torch.frombuffer(data, dtype=torch.float32)[:64].clone(), self.labels[row]


def main():
    torch.set_num_threads(1)
    images, labels = pace.digits()
    dataset = Packed(images[:600], labels[:600], Path(tempfile.mkdtemp(), "lock"))
    loader = DataLoader(dataset, batch_size=32, num_workers=3, persistent_workers=True)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pace.step()


main()
