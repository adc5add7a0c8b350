"""A recommender with sparse embeddings; the dataset looks up each user's features in a pandas table, row by row.

cause: cpu.input_preprocessing
fixed: the table is turned into a tensor once.
"""

import numpy as np
import pace
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

USERS, ITEMS = 20_000, 50_000


class Clicks(Dataset):
    def __init__(self):
        rng = np.random.default_rng(0)
        self.users = pd.DataFrame(rng.random((USERS, 6)).astype(np.float32), columns=list("abcdef"))
        self.values = torch.tensor(self.users.to_numpy())
        self.pairs = np.stack([rng.integers(USERS, size=200_000), rng.integers(ITEMS, size=200_000)], 1)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        user, item = self.pairs[index]
        if pace.bottleneck():
            row = self.users.loc[user]
            return torch.tensor(row.to_numpy()), int(item), float(row["a"] > 0.5)
        return self.values[user], int(item), float(self.values[user, 0] > 0.5)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.EmbeddingBag(ITEMS, 64, sparse=True)
        self.tower = nn.Sequential(nn.Linear(70, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, user, item):
        return self.tower(torch.cat([user, self.items(item[:, None])], 1))[:, 0]


torch.set_num_threads(1)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(Clicks(), batch_size=256, shuffle=True)
while True:
    for user, item, clicked in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(user, item), clicked.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
