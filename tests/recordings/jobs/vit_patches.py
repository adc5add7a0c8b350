"""A small vision transformer, compiled once, learns on the GPU from which place of two photographs a piece comes.

cause: gpu.compute
needs: a GPU
"""

import pace
import torch
from torch import nn
from torch.nn import functional as F

SIZE, PATCH, BATCH = (32, 16, 4) if pace.tiny() else (224, 16, 256)
WIDTH, DEPTH, HEADS = (32, 2, 2) if pace.tiny() else (512, 6, 8)
PLACES = 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.places = nn.Parameter(0.02 * torch.randn((SIZE // PATCH) ** 2, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, PLACES)

    def forward(self, pictures):
        x = self.patches(pictures).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.mean(1)))


class Pieces:
    """Draws batches on the device."""

    def __init__(self, device):
        photographs = torch.stack([torch.from_numpy(picture.copy()) for picture in pace.photographs()])
        self.photographs = photographs.to(device)
        self.window = torch.arange(SIZE, device=device)
        self.device = device

    def draw(self):
        number = torch.randint(2, (BATCH,), device=self.device)
        top = torch.randint(427 - SIZE, (BATCH,), device=self.device)
        left = torch.randint(640 - SIZE, (BATCH,), device=self.device)
        rows, columns = top[:, None, None] + self.window[:, None], left[:, None, None] + self.window
        pieces = self.photographs[number[:, None, None], rows, columns].permute(0, 3, 1, 2)
        place = number * 32 + top * 4 // (427 - SIZE) * 8 + left * 8 // (640 - SIZE)
        return pieces.float() / 127.5 - 1, place


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = pace.device()
    pieces = Pieces(device)
    model = Transformer().to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05, fused=device.type == "cuda")
    step = 0
    while True:
        pictures, places = pieces.draw()
        with torch.autocast(device.type, torch.bfloat16):
            scores = compiled(pictures)
        loss = F.cross_entropy(scores.float(), places)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f}")
        step += 1
        pace.step()


main()
