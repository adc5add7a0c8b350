"""A convolutional network whose images are decompressed and augmented by two workers."""

import sys
import zlib
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common

STORED, SIZE, COUNT = 320, 160, 64


class Images(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Compressed images, prepared on every access or once."""

    def __init__(self, prepared: bool) -> None:
        coarse = torch.randint(256, (COUNT, 3, STORED // 8, STORED // 8), dtype=torch.uint8)
        smooth = nn.functional.interpolate(coarse, scale_factor=8).numpy()
        self.files = [zlib.compress(image.tobytes()) for image in smooth]
        self.prepared = [self.prepare(index) for index in range(COUNT)] if prepared else None

    def __len__(self) -> int:
        return 1 << 16

    def prepare(self, index: int) -> tuple[torch.Tensor, int]:
        raw = bytearray(zlib.decompress(self.files[index % COUNT]))
        image = torch.frombuffer(raw, dtype=torch.uint8).view(1, 3, STORED, STORED).float() / 255
        side = int(torch.randint(SIZE, STORED, ()))
        top, left = (int(torch.randint(STORED - side + 1, ())) for _ in range(2))
        piece = image[:, :, top : top + side, left : left + side]
        piece = nn.functional.interpolate(piece, (SIZE, SIZE), mode="bicubic", antialias=True)
        return nn.functional.avg_pool2d(piece, 5, stride=1, padding=2)[0], index % 2

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.prepare(index) if self.prepared is None else self.prepared[index % COUNT]


def main() -> None:
    run = common.start(__doc__)
    device = accelerator.device()
    on_gpu = not accelerator.on_cpu()
    loader = torch.utils.data.DataLoader(
        Images(prepared=not run.bottleneck),
        batch_size=32 if on_gpu else 4,
        num_workers=2,
        persistent_workers=True,
        pin_memory=on_gpu,
    )
    width = 256 if on_gpu else 16
    blocks = [nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(4)]
    model = nn.Sequential(
        nn.Conv2d(3, width, 7, stride=4, padding=3), nn.BatchNorm2d(width), nn.ReLU(), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 2),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in accelerator.steps(run, loader):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
