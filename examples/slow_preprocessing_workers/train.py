"""Two photographs are told apart; workers decode and augment the large originals anew for every sample."""

import io
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


class Photographs(torch.utils.data.Dataset):
    """Crops of JPEG photographs, decoded and augmented on every access, or prepared once in advance."""

    def __init__(self, prepared: bool) -> None:
        self.files = common.jpegs(common.photographs())
        self.prepared = [self.prepare(i) for i in range(64)] if prepared else None

    def __len__(self) -> int:
        return 4096

    def prepare(self, index: int) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng(index)
        label = index % 2
        image = Image.open(io.BytesIO(self.files[label])).convert("RGB")
        left, top = int(rng.integers(0, 400)), int(rng.integers(0, 200))
        image = image.crop((left, top, left + 224, top + 224))
        image = image.rotate(float(rng.uniform(-15, 15)), Image.Resampling.BICUBIC)
        image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 2))))
        image = image.resize((64, 64), Image.Resampling.LANCZOS)
        return torch.from_numpy(np.asarray(image, np.float32) / 255).permute(2, 0, 1), label

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.prepared is not None:
            return self.prepared[index % len(self.prepared)]
        return self.prepare(index)


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Photographs(prepared=not run.bottleneck),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in run.steps(loader):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
