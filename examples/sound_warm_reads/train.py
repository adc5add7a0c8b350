"""A worker reads many megabytes a second from raw shards, all of them in the page cache."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
import machine

SIZE, SAMPLES = 256, 256
SAMPLE_BYTES = SIZE * SIZE * 3


class Shard(torch.utils.data.Dataset):
    """Samples at fixed offsets in one file; every fourth pixel of them is used."""

    def __init__(self, path: Path) -> None:
        pieces, self.labels = common.crops(SAMPLES, SIZE)
        path.write_bytes(pieces.tobytes())
        self.path = path

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        with self.path.open("rb") as file:
            file.seek(index * SAMPLE_BYTES)
            data = file.read(SAMPLE_BYTES)
        return np.frombuffer(data, np.uint8).reshape(SIZE, SIZE, 3)[::4, ::4].copy(), int(self.labels[index])


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with machine.folder() as folder:
        loader = torch.utils.data.DataLoader(
            Shard(Path(folder, "shard.bin")),
            batch_size=32,
            shuffle=True,
            num_workers=1,
            persistent_workers=True,
        )
        for images, labels in run.steps(loader):
            loss = nn.functional.cross_entropy(model(images.permute(0, 3, 1, 2).float() / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
