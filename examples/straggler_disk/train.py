"""Two ranks train together; the shard of rank 1 lies on a slow disk and is larger than memory."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common
import machine

SIZE, SAMPLES = 96, 512
SAMPLE_BYTES = SIZE * SIZE * 3


class Shard(torch.utils.data.Dataset):
    """Samples at fixed offsets in one file."""

    def __init__(self, path: Path, seed: int, cold: bool) -> None:
        pieces, self.labels = common.crops(SAMPLES, SIZE, seed)
        machine.write_through(path, pieces.tobytes())
        self.path, self.cold = path, cold

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        with self.path.open("rb") as file:
            file.seek(index * SAMPLE_BYTES)
            data = file.read(SAMPLE_BYTES)
            if self.cold:
                machine.forget(file.fileno())
        return np.frombuffer(data, np.uint8).reshape(SIZE, SIZE, 3).copy(), int(self.labels[index])


def main() -> None:
    common.under_torchrun()
    run = common.start(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(
            nn.Conv2d(3, 32, 5, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2),
        )
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with machine.folder() as folder:
        slow = run.bottleneck and run.rank == 1
        shard = Shard(Path(folder, "shard.bin"), run.rank, cold=slow)
        with machine.slow_disk(Path(folder), enabled=slow, read_bps=10_000_000):
            loader = torch.utils.data.DataLoader(
                shard, batch_size=32, shuffle=True, num_workers=1, persistent_workers=True
            )
            for images, labels in run.steps(loader):
                loss = nn.functional.cross_entropy(model(images.permute(0, 3, 1, 2).float() / 255), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    common.leave_group()


if __name__ == "__main__":
    main()
