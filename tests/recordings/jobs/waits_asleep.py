"""A small GPT that waits for the end of every step with an event that lets the host sleep.

cause: gpu.compute
needs: a GPU
"""

import pace
import torch
from torch import nn

device = pace.device()
width, layers, batch, length = (64, 1, 2, 16) if pace.tiny() else (1024, 8, 48, 512)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.out = nn.Linear(width, 256)

    def forward(self, x):
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


net = Net().to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=device.type == "cuda")
text = torch.tensor(list(pace.sources().encode()[:2_000_000]), dtype=torch.uint8).to(device)
while True:
    start = torch.randint(len(text) - length - 1, (batch,), device=device)
    rows = text[start[:, None] + torch.arange(length + 1, device=device)].long()
    with torch.autocast(device.type, torch.bfloat16):
        scores = net(rows[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if device.type == "cuda":
        done = torch.cuda.Event(blocking=True)
        done.record()
        done.synchronize()
    pace.step()
