"""A small U-Net segments pictures; each step gives hundreds of megabytes back to the kernel and takes them anew.

The fixed state has glibc keep what is freed (mallopt(3)), as the variables do that are advised.

cause: cpu.model_compute
"""

import ctypes

import torch
from pace import bottleneck, step
from torch import nn
from torch.nn import functional as F

# M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_MAX of malloc.h.
KEPT = {-1: 2**31 - 1, -2: 64 * 2**20, -4: 0}


def block(channels: int, out: int) -> nn.Sequential:
    pair = []
    for given in (channels, out):
        pair += [nn.Conv2d(given, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*pair)


class Segmenter(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.down = nn.ModuleList([block(3, width), block(width, 2 * width), block(2 * width, 4 * width)])
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, pictures):
        kept = []
        for number, stage in enumerate(self.down):
            pictures = stage(F.max_pool2d(pictures, 2) if number else pictures)
            kept.append(pictures)
        for stage, skipped in zip(self.up, reversed(kept[:-1]), strict=True):
            pictures = stage(torch.cat([F.interpolate(pictures, scale_factor=2), skipped], 1))
        return self.head(pictures)


def main() -> None:
    torch.manual_seed(0)
    pictures = torch.rand(64, 3, 128, 128)
    masks = (pictures.mean(1) > 0.5).long()
    model = Segmenter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        chosen = torch.randint(0, 64, (16,))
        loss = F.cross_entropy(model(pictures[chosen]), masks[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step()


if __name__ == "__main__":
    if not bottleneck():
        libc = ctypes.CDLL(None)
        for option, value in KEPT.items():
            libc.mallopt(option, value)
    main()
