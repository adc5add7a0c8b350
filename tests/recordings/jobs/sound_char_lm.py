"""A character model in the style of nanoGPT: batches from a memory-mapped file, nothing is wrong.

cause: cpu.model_compute
"""

import numpy as np
import pace
import torch
from torch import nn
from torch.nn import functional as F

batch_size, block_size, n_embd, n_layer = 16, 64, 128, 3

text = pace.sources()[:1_000_000]
stoi = {character: i for i, character in enumerate(sorted(set(text)))}
np.array([stoi[character] for character in text], dtype=np.uint16).tofile("train.bin")
data = np.memmap("train.bin", dtype=np.uint16, mode="r")


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    return x, y


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(stoi), n_embd), nn.Embedding(block_size, n_embd)
        layer = nn.TransformerEncoderLayer(n_embd, 4, 4 * n_embd, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, n_layer, enable_nested_tensor=False)
        self.lm_head = nn.Linear(n_embd, len(stoi))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(block_size))

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(block_size))
        logits = self.lm_head(self.blocks(x, mask=self.mask, is_causal=True))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
while True:
    X, Y = get_batch()
    loss = model(X, Y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    pace.step()
