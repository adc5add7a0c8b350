"""A small generative adversarial net on handwritten digits; generator and critic take turns, nothing is wrong.

cause: cpu.model_compute
"""

import pace
import torch
from torch import nn

real, _ = pace.digits()
generator = nn.Sequential(
    nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64), nn.Sigmoid()
)
critic = nn.Sequential(nn.Linear(64, 768), nn.LeakyReLU(0.2), nn.Linear(768, 768), nn.LeakyReLU(0.2), nn.Linear(768, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.9))
of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.9))
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(256, 1), torch.zeros(256, 1)
while True:
    for begin in range(0, len(real) - 256, 256):
        fake = generator(torch.randn(256, 32))
        loss = bce(critic(real[begin : begin + 256]), ones) + bce(critic(fake.detach()), zeros)
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        loss = bce(critic(fake), ones)
        of_generator.zero_grad()
        loss.backward()
        of_generator.step()
        pace.step()
