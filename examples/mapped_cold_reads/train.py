"""Crops lie in one memory-mapped array on a slow disk, and the data set is larger than memory."""

import mmap
import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
import machine

SIZE, SAMPLES, COPIES = 96, 256, 8


class Mapped(torch.utils.data.Dataset):
    """Rows of a NumPy file, read by touching its mapped pages."""

    def __init__(self, path: Path, labels: np.ndarray, cold: bool) -> None:
        self.path, self.labels, self.cold = path, labels, cold
        self.array = np.load(path, mmap_mode="r")
        self.array.base.madvise(mmap.MADV_RANDOM)  # no read-ahead: neighbours are of no use
        self.fd = os.open(path, os.O_RDONLY)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.from_numpy(self.array[index].astype(np.float32) / 255).permute(2, 0, 1)
        if self.cold and index % 16 == 0:
            self.array.base.madvise(mmap.MADV_DONTNEED)
            machine.forget(self.fd)
        return image, int(self.labels[index % SAMPLES])


def write_array(path: Path) -> np.ndarray:
    pieces, labels = common.crops(SAMPLES, SIZE)
    np.save(path, np.concatenate([pieces] * COPIES))
    machine.write_through(path, path.read_bytes())
    return labels


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with machine.folder() as folder:
        path = Path(folder, "crops.npy")
        labels = write_array(path)
        with machine.slow_disk(path, enabled=run.bottleneck, read_bps=8_000_000):
            loader = torch.utils.data.DataLoader(
                Mapped(path, labels, cold=run.bottleneck),
                batch_size=24,
                shuffle=True,
                num_workers=1,
                persistent_workers=True,
            )
            for images, targets in run.steps(loader):
                loss = nn.functional.cross_entropy(model(images), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


if __name__ == "__main__":
    main()
