"""A recogniser of sounds: convolutions over spectrograms, a recurrent cell that the model steps through time, a head.

cause: cpu.kernel_launch
needs: a GPU
fixed: the recurrent layer of cuDNN takes all steps at once.
"""

import pace
import torch
from torch import nn
from torch.nn import functional as F

BATCH, FRAMES, BANDS = (2, 64, 16) if pace.tiny() else (32, 1024, 80)
CHANNELS, WIDTH = (8, 32) if pace.tiny() else (128, 512)
SOUNDS = 64


class Cells(nn.Module):
    """Steps a cell through the sequence, from the first frame to the last."""

    def __init__(self, given, width):
        super().__init__()
        self.cell = nn.GRUCell(given, width)
        self.width = width

    def forward(self, frames):
        state = frames.new_zeros(len(frames), self.width)
        states = []
        for frame in frames.unbind(1):
            state = self.cell(frame, state)
            states.append(state)
        return torch.stack(states, 1)


class Layer(nn.Module):
    def __init__(self, given, width):
        super().__init__()
        self.layer = nn.GRU(given, width, batch_first=True)

    def forward(self, frames):
        return self.layer(frames)[0]


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.ears = nn.Sequential(
            nn.Conv2d(1, CHANNELS, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(CHANNELS, CHANNELS, 3, (1, 2), 1),
            nn.GELU(),
            nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, 2, 1),
            nn.GELU(),
            nn.Conv2d(2 * CHANNELS, 2 * CHANNELS, 3, (2, 1), 1),
            nn.GELU(),
        )
        self.project = nn.Linear(2 * CHANNELS * BANDS // 4, WIDTH)
        self.memory = Cells(WIDTH, WIDTH) if pace.bottleneck() else Layer(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, SOUNDS)

    def forward(self, sounds):
        with torch.autocast(sounds.device.type, torch.bfloat16):
            # (batch, frames, bands)
            heard = self.ears(sounds.unsqueeze(1).contiguous(memory_format=torch.channels_last))
            frames = self.project(heard.permute(0, 2, 1, 3).flatten(2))
        return self.head(self.memory(frames.float()))


def spectrograms(device):
    """Sums of sliding tones, and which tone is the lowest at a time."""
    time = torch.linspace(0, 1, FRAMES, device=device)
    starts = torch.rand(BATCH, 3, 1, device=device) * BANDS
    tones = starts + torch.randn(BATCH, 3, 1, device=device) * 20 * time
    bands = torch.arange(BANDS, device=device).view(1, 1, 1, -1)
    pictures = torch.exp(-((bands - tones.unsqueeze(-1) % BANDS) ** 2) / 4).sum(1)
    lowest = (tones % BANDS).amin(1)[:, ::4]
    return pictures, (lowest * SOUNDS / BANDS).long().clamp(0, SOUNDS - 1)


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = pace.device()
    model = Recogniser().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    step = 0
    while True:
        sounds, labels = spectrograms(device)
        scores = model(sounds)
        loss = F.cross_entropy(scores.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}")
        step += 1
        pace.step()


main()
