"""A small diffusion model, watched from inside around each step; the training process turns every picture with PIL.

cause: cpu.input_preprocessing
way: diagnose
fixed: the crops are made once, before training.
"""

import os
import random

import numpy as np
import pace
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from perfdoctor import diagnose


class Crops(Dataset):
    def __init__(self):
        self.photos = [Image.fromarray(photo) for photo in pace.photographs()]
        self.kept = None if pace.bottleneck() else [self.crop() for _ in range(128)]

    def crop(self):
        photo = random.choice(self.photos)
        left, top = random.randrange(500), random.randrange(300)
        piece = photo.crop((left, top, left + 120, top + 120)).rotate(random.uniform(-20, 20), Image.BICUBIC)
        return torch.from_numpy(np.asarray(piece.resize((32, 32), Image.LANCZOS)).copy()).permute(2, 0, 1) / 127.5 - 1

    def __len__(self):
        return 8192

    def __getitem__(self, index):
        return self.crop() if self.kept is None else self.kept[index % len(self.kept)]


class Denoiser(nn.Module):
    def __init__(self, width=56):
        super().__init__()
        self.first, self.time = nn.Conv2d(3, width, 3, padding=1), nn.Linear(1, width)
        self.rest = nn.Sequential(
            nn.SiLU(), nn.Conv2d(width, width, 3, padding=1), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, x, t):
        return self.rest(self.first(x) + self.time(t[:, None])[:, :, None, None])


torch.set_num_threads(1)
model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Crops(), batch_size=16)
while True:
    for x in loader:
        with diagnose(report=None, steps=200, profile=2, recording=os.environ.get("RECORDING")):
            t = torch.rand(len(x))
            noise, keep = torch.randn_like(x), (1 - t)[:, None, None, None]
            loss = nn.functional.mse_loss(model(keep.sqrt() * x + (1 - keep).sqrt() * noise, t), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        pace.step()
