"""A digit classifier whose random elastic distortion is computed with NumPy in the training process."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


class Digits(torch.utils.data.Dataset):
    """Digits enlarged to 32 x 32, distorted anew on every access, or once for all."""

    def __init__(self, distort_once: bool) -> None:
        images, self.labels = common.digits()
        self.images = images.view(-1, 8, 8).numpy()
        self.kept = torch.stack([self.distorted(i) for i in range(len(self.images))]) if distort_once else None

    def __len__(self) -> int:
        return len(self.images)

    def distorted(self, index: int) -> torch.Tensor:
        rng = np.random.default_rng()
        rows, columns = np.meshgrid(np.linspace(0, 7, 32), np.linspace(0, 7, 32), indexing="ij")
        for axis in (rows, columns):
            shift = rng.normal(0, 0.6, (4, 4)).repeat(8, 0).repeat(8, 1)
            axis += (shift + np.roll(shift, 4, 0) + np.roll(shift, 4, 1)) / 3
        top, left = np.clip(rows, 0, 6.999), np.clip(columns, 0, 6.999)
        r, c = top.astype(int), left.astype(int)
        dr, dc = top - r, left - c
        image = self.images[index]
        upper = image[r, c] * (1 - dc) + image[r, c + 1] * dc
        lower = image[r + 1, c] * (1 - dc) + image[r + 1, c + 1] * dc
        return torch.from_numpy((upper * (1 - dr) + lower * dr).astype(np.float32))[None]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.kept[index] if self.kept is not None else self.distorted(index)
        return image, int(self.labels[index])


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Digits(distort_once=not run.bottleneck), batch_size=64, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 64, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for images, labels in run.steps(loader):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
