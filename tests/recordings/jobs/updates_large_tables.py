"""A recommender updates all rows of two large tables at each step, by an optimizer that goes over memory a dozen times.

The fixed state has the fused optimizer, which goes over it once.

cause: cpu.model_compute
"""

import torch
from pace import bottleneck, step
from torch import nn

USERS, ITEMS, WIDTH, BATCH = 150_000, 90_000, 48, 1024


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, WIDTH), nn.Embedding(ITEMS, WIDTH)
        self.user = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, WIDTH))
        self.item = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, WIDTH))

    def forward(self, users, items):
        return self.user(self.users(users)) @ self.item(self.items(items)).T


def main() -> None:
    torch.manual_seed(0)
    model = Towers()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=not bottleneck())
    clicks = torch.randint(0, USERS, (500_000,)), torch.randint(0, ITEMS, (500_000,))
    while True:
        chosen = torch.randint(0, 500_000, (BATCH,))
        loss = nn.functional.cross_entropy(model(clicks[0][chosen], clicks[1][chosen]), torch.arange(BATCH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step()


if __name__ == "__main__":
    main()
