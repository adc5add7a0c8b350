"""A deep network of residual blocks over rows of features, in mixed precision, with layers of the author's own.

cause: gpu.memory_bandwidth
needs: a GPU
fixed: normalisation, activation and dropout are those of torch.nn.functional.
"""

import math

import pace
import torch
from torch import nn
from torch.nn import functional as F

ROWS, WIDTH, DEPTH = (64, 32, 2) if pace.tiny() else (32768, 1024, 10)
FEATURES, CLASSES, DROP = 64, 10, 0.1


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        if not pace.bottleneck():
            return F.layer_norm(x, x.shape[-1:], self.scale, self.shift)
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred**2).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.scale + self.shift


def activation(x):
    if not pace.bottleneck():
        return F.gelu(x, approximate="tanh")
    x = x.float()
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def dropout(x):
    if not pace.bottleneck():
        return F.dropout(x, DROP)
    x = x.float()
    mask = (torch.rand_like(x) > DROP).float()
    return x * mask / (1 - DROP)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm(WIDTH)
        self.inner, self.outer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gain = nn.Parameter(torch.full((WIDTH,), 0.1))

    def forward(self, x):
        hidden = dropout(activation(self.inner(self.norm(x))))
        return x + self.gain * dropout(self.outer(hidden))


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = pace.device()
    images, labels = (tensor.to(device) for tensor in pace.digits())
    model = nn.Sequential(nn.Linear(FEATURES, WIDTH), *(Block() for _ in range(DEPTH)), nn.Linear(WIDTH, CLASSES))
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    step = 0
    while True:
        rows = torch.randint(len(images), (ROWS,), device=device)
        noisy = images[rows] + 0.2 * torch.randn(ROWS, FEATURES, device=device)
        with torch.autocast(device.type, torch.bfloat16):
            scores = model(noisy)
        loss = F.cross_entropy(scores.float(), labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
        step += 1
        pace.step()


main()
