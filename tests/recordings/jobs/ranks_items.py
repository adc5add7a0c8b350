"""A recommender reads pretrained vectors of what users looked at from a table in the host's memory and ranks the next.

cause: gpu.host_transfer
needs: a GPU
fixed: the vectors are gathered into pinned memory one batch ahead and copied on a stream of their own.
"""

import pace
import torch
from torch import nn

ITEMS, WIDTH = (2_000, 64) if pace.tiny() else (150_000, 512)
BATCH, HISTORY, LAYERS = (32, 8, 1) if pace.tiny() else (4096, 32, 3)


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.places = nn.Parameter(torch.zeros(HISTORY, WIDTH))
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.score = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1))

    def forward(self, vectors):
        return self.score(self.layers(vectors + self.places).mean(1)).squeeze(1)


class Lookups:
    """Batches of vectors from the table."""

    def __init__(self, device):
        self.device = device
        self.table = torch.empty(ITEMS, WIDTH).uniform_(-0.05, 0.05)
        self.liked = torch.rand(ITEMS)
        self.vectors = torch.empty(BATCH * HISTORY, WIDTH)

    def draw(self, vectors):
        items = torch.randint(ITEMS, (BATCH * HISTORY,))
        torch.index_select(self.table, 0, items, out=vectors)
        clicked = self.liked[items].view(BATCH, HISTORY).mean(1) > 0.5
        return clicked.float()

    def __iter__(self):
        while True:
            clicked = self.draw(self.vectors)
            yield self.vectors.to(self.device).view(BATCH, HISTORY, WIDTH), clicked.to(self.device)


class AheadLookups(Lookups):
    """The same, gathered and copied while the batch before is in use."""

    def __init__(self, device):
        super().__init__(device)
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None
        pin = device.type == "cuda"
        self.buffers = [torch.empty(BATCH * HISTORY, WIDTH, pin_memory=pin) for _ in range(2)]
        self.copied = [None, None]

    def start(self, number):
        buffer = self.buffers[number]
        if self.copied[number] is not None:
            self.copied[number].synchronize()
        clicked = self.draw(buffer)
        if self.stream is None:
            return buffer.clone(), clicked
        clicked = clicked.pin_memory()
        with torch.cuda.stream(self.stream):
            vectors = buffer.to(self.device, non_blocking=True)
            clicked = clicked.to(self.device, non_blocking=True)
            self.copied[number] = self.stream.record_event()
        return vectors, clicked

    def __iter__(self):
        turn = 0
        ahead = self.start(turn)
        while True:
            vectors, clicked = ahead
            if self.stream is not None:
                current = torch.cuda.current_stream()
                current.wait_event(self.copied[turn])
                vectors.record_stream(current)
                clicked.record_stream(current)
            yield vectors.view(BATCH, HISTORY, WIDTH), clicked
            turn = 1 - turn
            ahead = self.start(turn)


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = pace.device()
    model = Ranker().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    lookups = Lookups(device) if pace.bottleneck() else AheadLookups(device)
    for step, (vectors, clicked) in enumerate(lookups):
        with torch.autocast(device.type, torch.bfloat16):
            scores = model(vectors)
        loss = nn.functional.binary_cross_entropy_with_logits(scores.float(), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
        pace.step()


main()
