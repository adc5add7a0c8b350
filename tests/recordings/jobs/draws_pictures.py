"""A denoising autoencoder; every tenth step it draws what it makes of some digits, enlarged, as a PNG.

cause: io.log_write
fixed: it draws every 500th step.
"""

import pace
import torch
from PIL import Image
from torch import nn

clean, _ = pace.digits()
model = nn.Sequential(
    nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 64), nn.Sigmoid()
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
shown = clean[:144] + 0.2 * torch.randn(144, 64)
every = 10 if pace.bottleneck() else 500


def draw(number):
    with torch.no_grad():
        made = model(shown)
    rows = made.view(12, 12, 8, 8).permute(0, 2, 1, 3).reshape(96, 96)
    noise = torch.rand(96, 96) / 8
    picture = Image.fromarray(((rows + noise).clamp(0, 1) * 255).byte().numpy())
    picture.resize((768, 768), Image.BICUBIC).save(f"made-{number % 20}.png")


step = 0
while True:
    order = torch.randperm(len(clean))
    for begin in range(0, len(order) - 256, 256):
        x = clean[order[begin : begin + 256]]
        loss = nn.functional.mse_loss(model(x + 0.2 * torch.randn_like(x)), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % every == 0:
            draw(step)
        pace.step()
