"""A tabular model reads row groups of a parquet file and one-hot encodes them with pandas, in one loader worker.

cause: cpu.input_preprocessing
fixed: the file is encoded once and kept as tensors.
"""

import numpy as np
import pace
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GROUPS, ROWS = 40, 1024


def make():
    rng = np.random.default_rng(0)
    names = np.array([f"city {i}" for i in range(60)])
    columns = {"city": names[rng.integers(60, size=GROUPS * ROWS)], "day": rng.integers(7, size=GROUPS * ROWS)}
    columns |= {f"x{i}": rng.standard_normal(GROUPS * ROWS).astype(np.float32) for i in range(20)}
    pq.write_table(pa.table(columns), "data.parquet", row_group_size=ROWS, compression="zstd")


class Groups(Dataset):
    def __init__(self):
        self.file = None
        self.kept = None if pace.bottleneck() else [self.read(i) for i in range(GROUPS)]
        self.file = None

    def read(self, index):
        self.file = self.file or pq.ParquetFile("data.parquet", memory_map=True)
        table = self.file.read_row_group(index, use_threads=False).to_pandas()
        cities = pd.Categorical(table.pop("city"), categories=[f"city {i}" for i in range(60)])
        table = pd.concat([table, pd.get_dummies(cities), pd.get_dummies(table.pop("day"))], axis=1)
        return torch.tensor(table.to_numpy(np.float32))[:, :87]

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return self.read(index % GROUPS) if self.kept is None else self.kept[index % GROUPS]


def main():
    make()
    torch.set_num_threads(1)
    loader = DataLoader(Groups(), batch_size=None, shuffle=True, num_workers=1)
    model = nn.Sequential(nn.Linear(87, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 1))
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        for x in loader:
            loss = nn.functional.mse_loss(model(x)[:, 0], x[:, 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pace.step()


main()
