"""A wide network scores risks from a table; every 30 steps the held-out rows tell the area under each risk's curve.

cause: cpu.evaluation
needs: a GPU
fixed: every thousand steps.
"""

import numpy as np
import pace
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

ROWS, HELD_OUT, COLUMNS, RISKS = (20_000, 4_000, 32, 5) if pace.tiny() else (1_000_000, 300_000, 96, 5)
BATCH, WIDTH, DEPTH = (256, 64, 3) if pace.tiny() else (16384, 2560, 10)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Linear(COLUMNS, WIDTH), nn.GELU()]
        for _ in range(DEPTH):
            layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
        self.layers = nn.Sequential(*layers, nn.Linear(WIDTH, RISKS))

    def forward(self, rows):
        return self.layers(rows)


def table(count, device):
    generator = torch.Generator(device).manual_seed(1)
    weights = torch.randn(COLUMNS, RISKS, device=device, generator=generator) / COLUMNS**0.5
    rows = torch.randn(count, COLUMNS, device=device)
    happened = (rows @ weights + torch.randn(count, RISKS, device=device) > 1).float()
    return rows, happened


class Experiment:
    def __init__(self, device):
        self.device = device
        self.rows, self.happened = table(ROWS, device)
        self.held_out = table(HELD_OUT, device)
        self.truth = self.held_out[1].cpu().numpy()
        self.model = Scorer().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.best = 0.0

    def fit(self, every):
        step = 0
        while True:
            for chosen in torch.randperm(ROWS, device=self.device).split(BATCH)[:-1]:
                with torch.autocast(self.device.type, torch.bfloat16):
                    scores = self.model(self.rows[chosen])
                loss = nn.functional.binary_cross_entropy_with_logits(scores.float(), self.happened[chosen])
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                step += 1
                if step % every == 0:
                    areas = self.evaluate()
                    self.best = max(self.best, float(np.mean(areas)))
                    print(f"step {step} loss {loss.item():.4f} areas {np.round(areas, 4)} best {self.best:.4f}")
                pace.step()

    @torch.inference_mode()
    def evaluate(self):
        self.model.eval()
        scores = []
        for rows in self.held_out[0].split(BATCH):
            with torch.autocast(self.device.type, torch.bfloat16):
                scores.append(self.model(rows).float())
        scores = torch.cat(scores).cpu().numpy()
        self.model.train()
        return [roc_auc_score(self.truth[:, risk], scores[:, risk]) for risk in range(RISKS)]


def main():
    torch.manual_seed(0)
    Experiment(pace.device()).fit(30 if pace.bottleneck() else 1000)


if __name__ == "__main__":
    main()
