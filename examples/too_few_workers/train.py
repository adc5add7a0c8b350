"""JPEG crops are decoded and augmented in the training process although a core is idle."""

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
    """JPEG crops, decoded, turned and scaled on every access."""

    def __init__(self) -> None:
        pieces, self.labels = common.crops(512, 128)
        self.files = common.jpegs(pieces)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        image = image.rotate(float(np.random.uniform(-20, 20)), Image.Resampling.BILINEAR)
        image = image.resize((64, 64), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.asarray(image, np.float32) / 255).permute(2, 0, 1), int(self.labels[index])


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    workers = {"num_workers": 0} if run.bottleneck else {"num_workers": 2, "persistent_workers": True}
    loader = torch.utils.data.DataLoader(Crops(), batch_size=32, shuffle=True, **workers)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 48, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(),
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
