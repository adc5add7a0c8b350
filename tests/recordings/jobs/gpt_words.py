"""A GPT learns to write code word by word, from a file of tokens that is mapped into memory.

cause: gpu.compute
needs: a GPU
"""

import math
import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pace
import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    vocab: int = 8192
    block: int = 64 if pace.tiny() else 1024
    batch: int = 2 if pace.tiny() else 12
    layers: int = 2 if pace.tiny() else 12
    heads: int = 4 if pace.tiny() else 12
    width: int = 64 if pace.tiny() else 768
    accumulate: int = 2
    lr: float = 6e-4
    warmup: int = 200
    decay: int = 20_000
    log_every: int = 20


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width, bias=False),
            nn.GELU(),
            nn.Linear(4 * config.width, config.width, bias=False),
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab, config.width)
        self.places = nn.Embedding(config.block, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.head.weight = self.tokens.weight
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def prepare(path, vocab):
    words = re.findall(r"\w+|\s+|[^\w\s]", pace.sources()[:5_000_000])
    ids = {word: number for number, (word, _) in enumerate(Counter(words).most_common(vocab - 1))}
    np.array([ids.get(word, vocab - 1) for word in words], dtype=np.uint16).tofile(path)


def get_batch(data, config, device):
    starts = np.random.randint(len(data) - config.block - 1, size=config.batch)
    x = torch.stack([torch.from_numpy(data[i : i + config.block].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + config.block].astype(np.int64)) for i in starts])
    if device.type == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x, y


def learning_rate(step, config):
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    done = min(1.0, (step - config.warmup) / (config.decay - config.warmup))
    return config.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def main():
    config = Config()
    device = pace.device()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    path = Path(tempfile.mkdtemp()) / "train.bin"
    prepare(path, config.vocab)
    data = np.memmap(path, dtype=np.uint16, mode="r")
    model = GPT(config).to(device)
    decayed = [weight for weight in model.parameters() if weight.dim() > 1]
    others = [weight for weight in model.parameters() if weight.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=config.lr, betas=(0.9, 0.95), fused=device.type == "cuda",
    )  # fmt: skip
    batch = get_batch(data, config, device)
    step = 0
    while True:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        for _ in range(config.accumulate):
            with torch.autocast(device.type, torch.bfloat16):
                loss = model(*batch) / config.accumulate
            batch = get_batch(data, config, device)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % config.log_every == 0:
            print(f"iter {step}: loss {loss.item() * config.accumulate:.4f}")
        step += 1
        pace.step()


if __name__ == "__main__":
    main()
