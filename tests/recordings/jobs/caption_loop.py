"""A captioner, watched from inside around the whole loop; its loader worker wraps and pads words in Python.

cause: cpu.input_preprocessing
way: diagnose
fixed: captions are encoded once, before training.
"""

import os
import re
import textwrap

import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from perfdoctor import diagnose

LENGTH, AROUND = 40, 36


class Captions(Dataset):
    def __init__(self):
        self.lines = [line for line in pace.sources()[:400_000].splitlines() if len(line) > 50]
        words = sorted({word for line in self.lines for word in re.findall(r"\w+|\W", line)})
        self.ids = {word: i + 1 for i, word in enumerate(words)}
        self.kept = None if pace.bottleneck() else [self.encode(i) for i in range(len(self.lines))]

    def encode(self, index):
        rows = textwrap.wrap(" ".join(self.lines[index : index + AROUND]), width=LENGTH)
        words = [word.strip().lower() for row in rows for word in re.findall(r"\w+|\W", row)]
        tokens = [self.ids.get(word, 0) for word in words if word]
        return torch.tensor((tokens + [0] * LENGTH)[:LENGTH])

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return self.encode(index) if self.kept is None else self.kept[index]


def main():
    torch.set_num_threads(1)
    dataset = Captions()
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=1, persistent_workers=True)
    embedding, rnn, head = nn.Embedding(len(dataset.ids) + 1, 64), nn.GRU(64, 64, batch_first=True), nn.Linear(64, 256)
    parameters = [*embedding.parameters(), *rnn.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    with diagnose(report=None, steps=200, profile=2, recording=os.environ.get("RECORDING")):
        while True:
            for tokens in loader:
                logits = head(rnn(embedding(tokens[:, :-1]))[0])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten() % 256)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                pace.step()


main()
