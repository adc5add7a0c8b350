"""A worker decodes and augments all the time, but keeps ahead of the trainer: the model is what counts."""

import io
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


class Crops(torch.utils.data.Dataset):
    """JPEG crops, decoded and turned on every access."""

    def __init__(self) -> None:
        pieces, self.labels = common.crops(512, 96)
        self.files = common.jpegs(pieces)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        image = image.rotate(float(np.random.uniform(-20, 20)), Image.Resampling.BICUBIC).resize((48, 48))
        return torch.from_numpy(np.asarray(image, np.float32) / 255).permute(2, 0, 1), int(self.labels[index])


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Crops(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True, prefetch_factor=4
    )
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 96, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in run.steps(loader):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
