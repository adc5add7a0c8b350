"""A hundred residual blocks over rows of a table, on the GPU from the start, trained by AdamW.

cause: cpu.kernel_launch
needs: a GPU
fixed: the fused implementation of AdamW.
"""

import pace
import torch
from torch import nn

ROWS, COLUMNS = (2_000, 32) if pace.tiny() else (400_000, 128)
BATCH, WIDTH, DEPTH = (64, 32, 12) if pace.tiny() else (8192, 768, 100)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.outer = nn.Linear(WIDTH, WIDTH)
        nn.init.zeros_(self.outer.weight)

    def forward(self, x):
        return x + self.outer(nn.functional.gelu(self.inner(self.norm(x))))


class Regressor:
    """Model, optimizer and schedule of one experiment."""

    def __init__(self, device):
        self.device = device
        self.model = nn.Sequential(
            nn.Linear(COLUMNS, WIDTH), *(Block() for _ in range(DEPTH)), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1)
        ).to(device)
        how = {"foreach": False} if pace.bottleneck() else {"fused": True}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-4, weight_decay=0.01, **how)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=1e-3, total_steps=10_000_000)
        self.mean = torch.zeros((), device=device)

    def train(self, x, y):
        with torch.autocast(self.device.type, torch.bfloat16):
            guess = self.model(x)
        loss = nn.functional.smooth_l1_loss(guess.float().squeeze(1), y)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.mean.lerp_(loss.detach(), 0.02)


def main():
    torch.manual_seed(0)
    device = pace.device()
    table = torch.randn(ROWS, COLUMNS, device=device)
    target = (table[:, :8] * table[:, 8:16]).sum(1) + table[:, 16:32].amax(1)
    experiment = Regressor(device)
    step = 0
    while True:
        for rows in torch.randperm(ROWS, device=device).split(BATCH):
            experiment.train(table[rows], target[rows])
            step += 1
            if step % 100 == 0:
                print(f"step {step} loss {experiment.mean.item():.4f}")
            pace.step()


main()
