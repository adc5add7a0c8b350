"""A residual network of one-dimensional convolutions removes noise from clips of sound, on a shared part of the GPU.

cause: gpu.memory_pressure
needs: a GPU
fixed: all clips are cut to one length.
"""

import os
import random

# One is told to set this where memory is fragmented. Newer versions read the second name.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:32")
os.environ.setdefault("PYTORCH_ALLOC_CONF", "max_split_size_mb:32")

import pace
import torch
from torch import nn
from torch.nn import functional as F

BATCH, CHANNELS, DEPTH = (2, 8, 2) if pace.tiny() else (8, 256, 8)
SHORT, USUAL, LONG = (600, 750, 900) if pace.tiny() else (60_000, 75_000, 90_000)
GIBIBYTES = 22


class Block(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(1, CHANNELS)
        self.wide = nn.Conv1d(CHANNELS, CHANNELS, 3, padding=dilation, dilation=dilation)
        self.back = nn.Conv1d(CHANNELS, CHANNELS, 1)

    def forward(self, x):
        return x + self.back(F.gelu(self.wide(self.norm(x))))


class Cleaner(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Conv1d(1, CHANNELS, 7, padding=3)
        self.blocks = nn.Sequential(*(Block(2 ** (number % 4)) for number in range(DEPTH)))
        self.end = nn.Conv1d(CHANNELS, 1, 7, padding=3)

    def forward(self, sound):
        return self.end(self.blocks(self.start(sound)))


def clips(length, device):
    """Chords, clean and with noise."""
    time = torch.arange(length, device=device) / 16_000
    tones = torch.rand(BATCH, 3, 1, device=device) * 2000 + 100
    clean = torch.sin(2 * torch.pi * tones * time).mean(1, keepdim=True)
    return clean, clean + 0.3 * torch.randn_like(clean)


def main():
    chance = random.Random(0)
    torch.manual_seed(0)
    device = pace.device()
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, GIBIBYTES * 2**30 / memory), 0)
    model = Cleaner().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    step = 0
    while True:
        length = chance.randint(SHORT, LONG) if pace.bottleneck() else USUAL
        clean, noisy = clips(length, device)
        with torch.autocast(device.type, torch.bfloat16):
            guess = model(noisy)
        loss = F.l1_loss(guess.float(), clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
        step += 1
        pace.step()


main()
