"""Two ranks train together; the samples of rank 1 are large, and its loader scales them down every time."""

import io
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common

SIZE = 48


class Shard(torch.utils.data.Dataset):
    """JPEG files, scaled to one size where they are not yet."""

    def __init__(self, large: bool, seed: int) -> None:
        pieces, self.labels = common.crops(256, 320 if large else SIZE, seed)
        self.files = common.jpegs(pieces)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        if image.size != (SIZE, SIZE):
            image = image.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
        return torch.from_numpy(np.asarray(image, np.float32) / 255).permute(2, 0, 1), int(self.labels[index])


def main() -> None:
    common.under_torchrun()
    run = common.start(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    shard = Shard(large=run.bottleneck and run.rank == 1, seed=run.rank)
    loader = torch.utils.data.DataLoader(shard, batch_size=32, shuffle=True, drop_last=True)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
        )
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in run.steps(loader):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    common.leave_group()


if __name__ == "__main__":
    main()
