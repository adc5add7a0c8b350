"""Crops of photographs are read from raw shards on a slow disk, and the data set is larger than memory."""

import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
import machine

SIZE, SHARDS, SAMPLES = 128, 8, 128
SAMPLE_BYTES = SIZE * SIZE * 3


class Shards(torch.utils.data.Dataset):
    """Samples at fixed offsets in a few large files."""

    def __init__(self, folder: Path, labels: np.ndarray, cold: bool) -> None:
        self.paths = [folder / f"shard-{i}.bin" for i in range(SHARDS)]
        self.labels = labels
        self.cold = cold

    def __len__(self) -> int:
        return SHARDS * SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        shard, place = divmod(index, SAMPLES)
        fd = os.open(self.paths[shard], os.O_RDONLY)
        try:
            data = os.pread(fd, SAMPLE_BYTES, place * SAMPLE_BYTES)
            if self.cold:
                machine.forget(fd)
        finally:
            os.close(fd)
        image = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(SIZE, SIZE, 3)
        return image, int(self.labels[place])


def write_shards(folder: Path) -> np.ndarray:
    pieces, labels = common.crops(SAMPLES, SIZE)
    for i in range(SHARDS):
        machine.write_through(folder / f"shard-{i}.bin", pieces.tobytes())
    return labels


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with machine.folder() as folder:
        labels = write_shards(Path(folder))
        with machine.slow_disk(Path(folder), enabled=run.bottleneck, read_bps=24_000_000):
            loader = torch.utils.data.DataLoader(
                Shards(Path(folder), labels, cold=run.bottleneck), batch_size=32, shuffle=True, num_workers=1
            )
            for images, targets in run.steps(loader):
                batch = images.permute(0, 3, 1, 2).float() / 255
                loss = nn.functional.cross_entropy(model(batch), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


if __name__ == "__main__":
    main()
