"""Two ranks train on texts in the order of a dump, so that the second one's are three times as long.

cause: cpu.model_compute
straggler: 1
fixed: each rank takes every other text of all, sorted by length.
"""

import random

import pace
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 8


class Reader(nn.Module):
    """A small encoder that guesses each next token."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.guess = nn.Linear(64, 128)

    def forward(self, tokens):
        return self.guess(self.encoder(self.embed(tokens)))


def texts():
    """Short ones, then long ones."""
    made = torch.Generator().manual_seed(1)
    lengths = [*torch.randint(24, 72, (800,), generator=made), *torch.randint(96, 192, (800,), generator=made)]
    return [torch.randint(128, (int(length),), generator=made) for length in lengths]


def batches(found, rank):
    """Texts of like length together, in random order."""
    half = len(found) // 2
    if pace.bottleneck():
        mine = sorted(found[rank * half : (rank + 1) * half], key=len)
    else:
        mine = sorted(found, key=len)[rank::2]
    groups = [mine[start : start + BATCH] for start in range(0, len(mine), BATCH)]
    random.Random(3).shuffle(groups)
    return [nn.utils.rnn.pad_sequence(group, batch_first=True) for group in groups]


def main():
    pace.under_torchrun()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(Reader())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    mine = batches(texts(), dist.get_rank())
    while True:
        for tokens in mine:
            guesses = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(guesses.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pace.step()


main()
