"""Every sample is a small file of its own on a disk with few operations a second; none stays in memory."""

import io
import os
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
import machine

SIZE = 40


class Files(torch.utils.data.Dataset):
    """One file per sample."""

    def __init__(self, folder: Path, cold: bool) -> None:
        pieces, self.labels = common.crops(1024, SIZE)
        self.paths = [folder / f"{i:04d}.jpg" for i in range(len(pieces))]
        self.cold = cold
        for path, data in zip(self.paths, common.jpegs(pieces), strict=True):
            machine.write_through(path, data)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        fd = os.open(self.paths[index], os.O_RDONLY)
        with open(fd, "rb") as file:
            data = file.read()
            if self.cold:
                machine.forget(fd)
        image = np.asarray(Image.open(io.BytesIO(data)), np.float32) / 255
        return torch.from_numpy(image).permute(2, 0, 1), int(self.labels[index])


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with machine.folder() as folder:
        files = Files(Path(folder), cold=run.bottleneck)
        with machine.slow_disk(Path(folder), enabled=run.bottleneck, read_iops=400):
            loader = torch.utils.data.DataLoader(files, batch_size=32, shuffle=True)
            for images, targets in run.steps(loader):
                loss = nn.functional.cross_entropy(model(images), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


if __name__ == "__main__":
    main()
