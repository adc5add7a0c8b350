"""A diffusion model's U-Net learns to remove noise from pieces of photographs, reproducibly.

cause: gpu.no_tensor_cores
needs: a GPU
fixed: TF32 is allowed for products and convolutions.
"""

import copy

import pace
import torch
from torch import nn
from torch.nn import functional as F

SIZE, BATCH, WIDTH = (16, 2, 8) if pace.tiny() else (64, 32, 128)


class Residual(nn.Module):
    def __init__(self, given, out):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, given), nn.GroupNorm(8, out)
        self.conv1, self.conv2 = nn.Conv2d(given, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(4 * WIDTH, out)
        self.short = nn.Conv2d(given, out, 1) if given != out else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.short(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        batch, channels, high, wide = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, 3, 4, channels // 4, high * wide).transpose(3, 4).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(2, 3).reshape(batch, channels, high, wide))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        w = WIDTH
        self.time = nn.Sequential(nn.Linear(w, 4 * w), nn.SiLU(), nn.Linear(4 * w, 4 * w), nn.SiLU())
        self.start = nn.Conv2d(3, w, 3, padding=1)
        self.down = nn.ModuleList([Residual(w, w), Residual(w, 2 * w), Residual(2 * w, 4 * w)])
        self.middle = nn.ModuleList([Residual(4 * w, 4 * w), Attention(4 * w), Residual(4 * w, 4 * w)])
        self.up = nn.ModuleList([Residual(8 * w, 2 * w), Residual(4 * w, w), Residual(2 * w, w)])
        self.end = nn.Sequential(nn.GroupNorm(8, w), nn.SiLU(), nn.Conv2d(w, 3, 3, padding=1))

    def forward(self, x, moment):
        places = torch.exp(torch.linspace(0, -9, WIDTH // 2, device=x.device))
        angles = moment[:, None] * 1000 * places
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        x = self.start(x)
        kept = []
        for number, stage in enumerate(self.down):
            x = stage(F.avg_pool2d(x, 2) if number else x, time)
            kept.append(x)
        first, attention, second = self.middle
        x = second(attention(first(x, time)), time)
        for number, stage in enumerate(self.up):
            x = F.interpolate(x, scale_factor=2.0) if number else x
            x = stage(torch.cat([x, kept.pop()], 1), time)
        return self.end(x)


def pieces(photographs, device):
    _, _, high, wide = photographs.shape
    number = torch.randint(len(photographs), (BATCH, 1, 1), device=device)
    window = torch.arange(SIZE, device=device)
    rows = torch.randint(high - SIZE, (BATCH, 1, 1), device=device) + window[:, None]
    columns = torch.randint(wide - SIZE, (BATCH, 1, 1), device=device) + window
    return photographs[number, :, rows, columns].permute(0, 3, 1, 2).contiguous()


def main():
    torch.manual_seed(0)
    device = pace.device()
    torch.backends.cuda.matmul.allow_tf32 = not pace.bottleneck()
    torch.backends.cudnn.allow_tf32 = not pace.bottleneck()
    photographs = torch.stack([torch.from_numpy(picture.copy()) for picture in pace.photographs()])
    photographs = (photographs.permute(0, 3, 1, 2).float() / 127.5 - 1).to(device)
    model = UNet().to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    step = 0
    while True:
        clean, moment = pieces(photographs, device), torch.rand(BATCH, device=device)
        noise = torch.randn_like(clean)
        kept = torch.cos(moment * torch.pi / 2).view(-1, 1, 1, 1)
        loss = F.mse_loss(model(kept * clean + (1 - kept**2).sqrt() * noise, moment), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
        step += 1
        pace.step()


main()
