"""A small GPT as somebody writes it first, and the changes that make it fast: ``gpt.py [CHANGE ...]``.

It learns to write Python from the standard library's own source. Each change is what one finding of perfdoctor led to;
``docs/walkthrough.md`` tells the story. It prints the tokens that it has trained on per second.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

CHANGES = ("threads", "gc", "attention", "evaluation", "tokens", "checkpoints", "log", "optimizer", "batch")
CONTEXT, WIDTH, HEADS, LAYERS, WORDS = 64, 64, 4, 3, 1000
BATCH, LARGER_BATCH = 8, 32
WORD = re.compile(r"\s+|\w+|[^\w\s]")


def read_text() -> str:
    """Real text without a download."""
    library = Path(sysconfig.get_paths()["stdlib"])
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(library.glob("*.py")))


class Tokenizer:
    """Numbers for the most frequent words; a word that is not among them is spelt."""

    def __init__(self, text: str) -> None:
        words = [word for word, _ in Counter(WORD.findall(text)).most_common(WORDS - 256)]
        self.number = {word: 256 + place for place, word in enumerate(words)}

    def encode(self, text: str) -> list[int]:
        """A text as numbers below ``WORDS``."""
        numbers: list[int] = []
        for word in WORD.findall(text):
            known = self.number.get(word)
            numbers += [known] if known is not None else list(word.encode())
        return numbers


class Lines(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Pieces of the text, each encoded when it is asked for."""

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self.text, self.tokenizer = text, tokenizer

    def __len__(self) -> int:
        return len(self.text) // 1000 - 50

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = self.tokenizer.encode(self.text[1000 * index : 1000 * index + 50 * CONTEXT])[: CONTEXT + 1]
        return torch.tensor(numbers[:-1]), torch.tensor(numbers[1:])


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, *, together: bool) -> None:
        super().__init__()
        self.together = together
        self.heads = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH // HEADS) for _ in range(HEADS))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mixes the places of each sequence."""
        batch, places, _ = x.shape
        if self.together:
            parts = self.qkv(x).view(batch, places, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
            return self.out(mixed.transpose(1, 2).reshape(batch, places, WIDTH))  # type: ignore[no-any-return]
        outputs = []
        for sequence in x:  # one sequence and one head after the other, as it is explained in books
            heads = []
            for head in self.heads:
                query, key, value = head(sequence).chunk(3, dim=-1)
                scores = query @ key.T / (WIDTH // HEADS) ** 0.5
                scores = scores.masked_fill(torch.ones(places, places).tril() == 0, float("-inf"))
                heads.append(torch.softmax(scores, dim=-1) @ value)
            outputs.append(torch.cat(heads, dim=-1))
        return self.out(torch.stack(outputs))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and a small network, each added to what comes in."""

    def __init__(self, *, together: bool) -> None:
        super().__init__()
        self.attention = Attention(together=together)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer."""
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """The next word from those before it."""

    def __init__(self, *, together: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block(together=together) for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of each word at each place."""
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.blocks(x))  # type: ignore[no-any-return]


def loss_of(model: GPT, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """How surprised the model is."""
    return functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def batches_of(text: str, tokenizer: Tokenizer, changes: set[str]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches without an end."""
    size = LARGER_BATCH if "batch" in changes else BATCH
    if "tokens" in changes:
        tokens = torch.tensor(tokenizer.encode(text))
        while True:
            starts = torch.randint(len(tokens) - CONTEXT - 1, (size, 1)) + torch.arange(CONTEXT)
            yield tokens[starts], tokens[starts + 1]
    while True:
        yield from DataLoader(Lines(text, tokenizer), batch_size=size, shuffle=True, drop_last=True)


def update(model: GPT, optimizer: torch.optim.Optimizer, *, together: bool) -> None:
    """Bounds the gradients, and takes the step."""
    if together:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    else:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(min(1.0, 1.0 / (parameter.grad.norm().item() + 1e-6)))
    optimizer.step()


def train(changes: set[str], seconds: float, folder: Path) -> None:
    """Trains for so many seconds, and says how fast."""
    torch.manual_seed(0)
    torch.set_num_threads((1 if "threads" in changes else 8) * (os.cpu_count() or 1))
    text = read_text()
    tokenizer = Tokenizer(text)
    model = GPT(together="attention" in changes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused="optimizer" in changes or None)
    batches = batches_of(text, tokenizer, changes)
    held_out = [next(batches) for _ in range(4 if "evaluation" in changes else 8)]
    print("ready", flush=True)
    seen, began, counted = 0, time.monotonic(), time.monotonic()
    for step, (tokens, targets) in enumerate(batches):
        optimizer.zero_grad()
        loss = loss_of(model, tokens, targets)
        loss.backward()
        update(model, optimizer, together="optimizer" in changes)
        if "gc" not in changes:
            gc.collect()
        if step % (500 if "evaluation" in changes else 10) == 0:
            model.eval()
            with torch.no_grad():
                judged = sum(loss_of(model, *batch).item() for batch in held_out) / len(held_out)
            model.train()
        if step % (1000 if "checkpoints" in changes else 10) == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "last.pt")
        if "log" not in changes or step % 100 == 0:
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps({"step": step, "loss": loss.item(), "held out": judged}) + "\n")
                log.flush()
                os.fsync(log.fileno())
        now = time.monotonic()
        if now - began < 2:  # the first steps set up what later ones reuse
            seen, counted = 0, now
        else:
            seen += tokens.numel()
        if now - began > seconds:
            break
    print(f"{seen / (time.monotonic() - counted):.0f} tokens/s", flush=True)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("changes", nargs="*", choices=[*CHANGES, []], help="changes that have been made")
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        train(set(arguments.changes), arguments.seconds, Path(folder))


if __name__ == "__main__":
    main()
