"""Two ranks share a GPU and learn to sort documents; each reads a shard, and one shard came from web pages.

cause: cpu.input_preprocessing
needs: a GPU
straggler: 1
fixed: that shard is plain text like the other.
"""

import html
import re

import numpy as np
import pace
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

LENGTH, BATCH = (64, 4) if pace.tiny() else (2048, 32)
WIDTH, LAYERS = (16, 2) if pace.tiny() else (256, 10)
TAG = re.compile(r"<(/?)([a-z0-9]+)([^<>]*)>")


def page(text):
    """The text as a web page shows it, with line numbers and marks for its words."""
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        words = [f'<span class="w{len(word) % 7}">{html.escape(word)}</span>' for word in line.split(" ")]
        lines.append(f'<tr><td class="number" id="L{number}">{number}</td><td>{" ".join(words)}</td></tr>')
    return '<table class="code">' + "\n".join(lines) + "</table>"


def readable(markup):
    """The text of a page, without tags and line numbers."""
    kept, stack, last = [], [], 0
    for tag in TAG.finditer(markup):
        piece = markup[last : tag.start()]
        if piece and not any(attributes.startswith(' class="number"') for _, attributes in stack):
            kept.append(html.unescape(piece))
        if not tag[1]:
            stack.append((tag[2], tag[3]))
        elif stack and stack[-1][0] == tag[2]:
            stack.pop()
        last = tag.end()
    return "".join(kept)


class Shard(Dataset):
    def __init__(self, text, pages, length=1_000_000):
        starts = range(0, len(text) - 3 * LENGTH, max(LENGTH, len(text) // 400))
        self.documents = [text[start : start + 3 * LENGTH] for start in starts]
        self.pages = pages
        if pages:
            self.documents = [page(document) for document in self.documents]
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        document = self.documents[index % len(self.documents)]
        if self.pages:
            document = readable(document)
        letters = np.frombuffer(document[:LENGTH].encode("latin-1", "replace").ljust(LENGTH), np.uint8)
        return torch.from_numpy(letters.astype(np.int64)), int("self." in document)


class Layer(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.wide = nn.Conv1d(WIDTH, WIDTH, 5, padding=2 * dilation, dilation=dilation)

    def forward(self, x):
        return x + nn.functional.gelu(self.wide(self.norm(x)))


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(256, WIDTH)
        self.layers = nn.Sequential(*(Layer(2 ** (number % 5)) for number in range(LAYERS)))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, letters):
        return self.head(self.layers(self.letters(letters).transpose(1, 2)).amax(2))


def main():
    pace.under_torchrun()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    device = pace.device()
    if device.type == "cuda":
        device = torch.device("cuda", 0)
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    text = pace.sources()
    half = len(text) // 2
    shard = Shard(text[rank * half :][:half], rank == 1 and pace.bottleneck())
    loader = DataLoader(
        shard,
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        drop_last=True,
        pin_memory=device.type == "cuda",
        persistent_workers=True,
    )
    model = DistributedDataParallel(Sorter().to(device), device_ids=[0] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    step = 0
    while True:
        for letters, kind in loader:
            letters, kind = letters.to(device, non_blocking=True), kind.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16):
                output = model(letters)
            loss = nn.functional.cross_entropy(output.float(), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0 and rank == 0:
                print(f"step {step} loss {loss.item():.3f}")
            step += 1
            pace.step()


if __name__ == "__main__":
    main()
