"""A transformer encoder tags the characters of code by kind; the loop scales each layer's gradients by their own norm.

cause: cpu.synchronization
needs: a GPU
fixed: the gradients are clipped by PyTorch's function, and the loss is read every fifty steps.
"""

import math

import numpy as np
import pace
import torch
from torch import nn

LENGTH, BATCH = (32, 4) if pace.tiny() else (256, 64)
WIDTH, LAYERS = (32, 2) if pace.tiny() else (512, 12)
TAGS = 6


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(256, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, TAGS)

    def forward(self, text):
        return self.head(self.layers(self.letters(text) + self.places))


def kinds(letters):
    """The tag of each character: letter, digit, space, line break, bracket or other."""
    table = np.full(256, 5)
    for number, group in enumerate((b"abcdefghijklmnopqrstuvwxyz_", b"0123456789", b" \t", b"\n", b"()[]{}")):
        table[list(group)] = number
    return table[letters]


def limit_layers(model, limit):
    """Scales each gradient that is too long against its own weights; returns the norms for the log."""
    norms = {}
    for name, weight in model.named_parameters():
        norm = weight.grad.norm().item()
        allowed = limit * max(weight.detach().norm().item(), 1e-3)
        if norm > allowed:
            weight.grad.mul_(allowed / norm)
        norms[name] = norm
    return norms


def main():
    device = pace.device()
    torch.manual_seed(0)
    letters = np.frombuffer(pace.sources()[:3_000_000].encode("latin-1", "replace"), np.uint8)
    text = torch.from_numpy(letters.astype(np.int64)).to(device)
    tags = torch.from_numpy(kinds(letters)).to(device)
    model = Tagger().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 500))
    window = torch.arange(LENGTH, device=device)
    mean, step = math.log(TAGS), 0
    while True:
        rows = torch.randint(len(text) - LENGTH, (BATCH, 1), device=device) + window
        with torch.autocast(device.type, torch.bfloat16):
            output = model(text[rows])
        loss = nn.functional.cross_entropy(output.float().flatten(0, 1), tags[rows].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if pace.bottleneck():
            norms = limit_layers(model, 0.1)
            mean = 0.99 * mean + 0.01 * loss.item()
            if step % 50 == 0:
                print(f"step {step} loss {mean:.3f} largest {max(norms.values()):.3f}")
        else:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.3f} norm {norm.item():.3f}")
        optimizer.step()
        schedule.step()
        step += 1
        pace.step()


main()
