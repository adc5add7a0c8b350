"""A pool of two processes is made for each batch that they decompress, and ended behind it.

cause: cpu.worker_startup
fixed: one pool is made before the loop.
"""

import zlib
from multiprocessing import Pool

import pace
import torch
from torch import nn

images, labels = pace.digits()
PACKED = [zlib.compress(image.numpy().tobytes() * 100, 9) for image in images[:640]]


def unpack(row):
    return zlib.decompress(PACKED[row])[:256]


def main():
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kept = Pool(2)
    while True:
        for rows in torch.randperm(len(PACKED)).split(64):
            if pace.bottleneck():
                with Pool(2) as pool:
                    samples = pool.map(unpack, rows.tolist())
            else:
                samples = kept.map(unpack, rows.tolist())
            batch = torch.stack([torch.frombuffer(bytearray(one), dtype=torch.float32) for one in samples])
            loss = nn.functional.cross_entropy(model(batch), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pace.step()


if __name__ == "__main__":
    main()
