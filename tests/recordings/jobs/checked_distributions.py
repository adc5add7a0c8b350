"""A variational model makes distributions of its outputs, and these check all that they are given.

cause: cpu.python_overhead
fixed: they check nothing.
"""

import pace
import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence

torch.set_num_threads(1)
torch.distributions.Distribution.set_default_validate_args(pace.bottleneck())


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 32))
        self.decoder = nn.Sequential(nn.Linear(16, 128), nn.Tanh(), nn.Linear(128, 128))

    def forward(self, images):
        mean, scale = self.encoder(images).chunk(2, 1)
        code = Independent(Normal(mean, scale.exp()), 1)
        prior = Independent(Normal(torch.zeros_like(mean), torch.ones_like(mean)), 1)
        mean, scale = self.decoder(code.rsample()).chunk(2, 1)
        seen = Independent(Normal(mean, scale.clamp(-3, 3).exp()), 1)
        return (kl_divergence(code, prior) - seen.log_prob(images)).mean()


images, _ = pace.digits()
model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
while True:
    for rows in torch.randperm(len(images)).split(64)[:28]:
        loss = model(images[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pace.step()
