"""Two ranks share a GPU and train a language model of characters; gloo exchanges the gradients.

cause: communication.bandwidth
needs: a GPU
fixed: eight microbatches a step, of which only the last exchanges gradients.
"""

import contextlib

import numpy as np
import pace
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LENGTH, BATCH = (32, 4) if pace.tiny() else (512, 48)
WIDTH, LAYERS = (256, 2) if pace.tiny() else (640, 4)
MICROBATCHES = 1 if pace.bottleneck() else 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(256, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, WIDTH // 64, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 256)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, letters):
        x = self.letters(letters) + self.places
        return self.head(self.layers(x, self.mask, is_causal=True))


def main():
    pace.under_torchrun()
    dist.init_process_group("gloo")
    device = pace.device()
    if device.type == "cuda":
        device = torch.device("cuda", 0)
        torch.cuda.set_device(device)
    torch.manual_seed(dist.get_rank())
    letters = np.frombuffer(pace.sources()[:2_000_000].encode("latin-1", "replace"), np.uint8)
    text = torch.from_numpy(letters.astype(np.int64)).to(device)
    model = DistributedDataParallel(Model().to(device), device_ids=[0] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    window = torch.arange(LENGTH + 1, device=device)
    step = 0
    while True:
        for micro in range(MICROBATCHES):
            rows = text[torch.randint(len(text) - LENGTH - 1, (BATCH, 1), device=device) + window]
            with model.no_sync() if micro < MICROBATCHES - 1 else contextlib.nullcontext():
                with torch.autocast(device.type, torch.bfloat16):
                    output = model(rows[:, :-1])
                    loss = nn.functional.cross_entropy(output.flatten(0, 1), rows[:, 1:].flatten())
                (loss / MICROBATCHES).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.3f}")
        step += 1
        pace.step()


if __name__ == "__main__":
    main()
