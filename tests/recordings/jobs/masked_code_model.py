"""A bidirectional encoder restores masked characters of code; its state is kept on disk.

cause: io.checkpoint_write
needs: a GPU
fixed: the state is written every two thousand steps in place of every eight.
"""

import os

import numpy as np
import pace
import torch
from torch import nn

LENGTH, BATCH = (32, 4) if pace.tiny() else (512, 88)
WIDTH, LAYERS = (256, 4) if pace.tiny() else (768, 17)
LETTERS, MASK = 256, 0


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, WIDTH // 64, 4 * WIDTH, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, letters):
        return self.head(self.layers(self.letters(letters) + self.places))


class Run:
    def __init__(self, device):
        self.device = device
        self.model = Encoder().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-4, fused=device.type == "cuda")
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=100_000)
        self.step = 0

    def save(self, path):
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
        }
        torch.save(state, path + ".new")
        os.replace(path + ".new", path)

    def train(self, letters):
        masked = torch.rand(letters.shape, device=self.device) < 0.15
        with torch.autocast(self.device.type, torch.bfloat16):
            output = self.model(letters.masked_fill(masked, MASK))
            loss = nn.functional.cross_entropy(output.flatten(0, 1), letters.flatten(), reduction="none")
        loss = (loss * masked.flatten()).sum() / masked.sum()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.schedule.step()
        self.step += 1
        return loss


def main():
    torch.manual_seed(0)
    device = pace.device()
    code = np.frombuffer(pace.sources()[:3_000_000].encode("latin-1", "replace"), np.uint8)
    code = torch.from_numpy(code.astype(np.int64)).to(device)
    window = torch.arange(LENGTH, device=device)
    run = Run(device)
    every = 8 if pace.bottleneck() else 2000
    while True:
        starts = torch.randint(len(code) - LENGTH, (BATCH, 1), device=device)
        loss = run.train(code[starts + window])
        if run.step % 40 == 0:
            print(f"step {run.step} loss {loss.item():.3f}")
        if run.step % every == 0:
            run.save("last.pt")
        pace.step()


if __name__ == "__main__":
    main()
