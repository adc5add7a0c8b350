"""Workers decode photographs under one lock that was meant for their archive: only one works at a time."""

import contextlib
import io
import multiprocessing
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


class Archive(torch.utils.data.Dataset):
    """JPEG crops of photographs."""

    def __init__(self, lock) -> None:  # type: ignore[no-untyped-def]
        pieces, self.labels = common.crops(256, 400)
        self.files = common.jpegs(pieces)
        self.lock = lock

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with self.lock or contextlib.nullcontext():
            image = Image.open(io.BytesIO(self.files[index])).convert("RGB").resize((32, 32), Image.Resampling.LANCZOS)
        return torch.from_numpy(np.asarray(image, np.float32) / 255).permute(2, 0, 1), int(self.labels[index])


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    lock = multiprocessing.Lock() if run.bottleneck else None
    loader = torch.utils.data.DataLoader(
        Archive(lock), batch_size=16, shuffle=True, num_workers=3, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 2),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, targets in run.steps(loader):
        loss = nn.functional.cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
