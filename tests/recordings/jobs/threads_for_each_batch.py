"""Sixteen threads are started for each batch that they decompress without the GIL, and end behind it.

cause: cpu.input_preprocessing
fixed: the batch is taken from memory.
"""

import zlib
from concurrent.futures import ThreadPoolExecutor

import pace
import torch
from torch import nn

torch.set_num_threads(1)
images, labels = pace.digits()
packed = [zlib.compress(image.numpy().tobytes() * 300, 9) for image in images[:640]]


def unpack(row):
    return torch.frombuffer(bytearray(zlib.decompress(packed[row])), dtype=torch.float32)[:64].clone()


model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
while True:
    for rows in torch.randperm(len(packed)).split(64):
        if pace.bottleneck():
            with ThreadPoolExecutor(16) as pool:
                batch = torch.stack(list(pool.map(unpack, rows.tolist())))
        else:
            batch = images[rows]
        loss = nn.functional.cross_entropy(model(batch), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
