"""A wide residual network learns 50 kinds of photographs, which a loader's workers decode, crop and colour with PIL.

cause: cpu.input_preprocessing
needs: a GPU
fixed: fourteen workers in place of two.
"""

import io
import random

import numpy as np
import pace
import torch
from PIL import Image, ImageEnhance
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 64 if pace.tiny() else 224
BATCH = 8 if pace.tiny() else 48
WIDTH = 8 if pace.tiny() else 128
KINDS = 50


def album(count):
    """JPEG files: pieces of two photographs in other light."""
    chance = random.Random(0)
    originals = [Image.fromarray(picture) for picture in pace.photographs()]
    files = []
    for number in range(count):
        original = originals[number % 2]
        left, top = chance.randrange(40), chance.randrange(27)
        piece = original.crop((left, top, left + 600, top + 400))
        piece = ImageEnhance.Brightness(piece).enhance(chance.uniform(0.7, 1.3))
        file = io.BytesIO()
        piece.save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


class Photographs(Dataset):
    def __init__(self, files, length):
        self.files, self.length = files, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        number = index % len(self.files)
        picture = Image.open(io.BytesIO(self.files[number])).convert("RGB")
        picture = self.crop(picture)
        if random.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        picture = ImageEnhance.Color(picture).enhance(random.uniform(0.8, 1.2))
        picture = ImageEnhance.Contrast(picture).enhance(random.uniform(0.8, 1.2))
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1), number % KINDS

    def crop(self, picture):
        width, height = picture.size
        area = random.uniform(0.3, 1.0) * width * height
        ratio = random.uniform(0.75, 1.33)
        wide = min(width, int((area * ratio) ** 0.5))
        high = min(height, int((area / ratio) ** 0.5))
        left, top = random.randint(0, width - wide), random.randint(0, height - high)
        box = (left, top, left + wide, top + high)
        return picture.resize((SIZE, SIZE), Image.Resampling.BICUBIC, box=box)


class Bottleneck(nn.Module):
    def __init__(self, given, middle, out, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(given, middle, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle, middle, 3, stride, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.short = nn.Identity()
        if stride != 1 or given != out:
            self.short = nn.Sequential(nn.Conv2d(given, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def network():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        middle, out = WIDTH << stage, (2 * WIDTH) << stage
        for number in range(depth):
            layers.append(Bottleneck(channels, middle, out, 2 if stage and not number else 1))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, KINDS))


def main():
    device = pace.device()
    torch.manual_seed(0)
    dataset = Photographs(album(20 if pace.tiny() else 240), 200_000)
    loader = DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=2 if pace.bottleneck() else 14,
        pin_memory=device.type == "cuda",
        persistent_workers=True,
    )
    model = network().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    mean = torch.tensor([124.0, 116.0, 104.0], device=device).view(1, 3, 1, 1)
    dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
    step = 0
    while True:
        for pictures, kinds in loader:
            pictures = pictures.to(device, non_blocking=True)
            kinds = kinds.to(device, non_blocking=True)
            pictures = ((pictures.float() - mean) / 58).contiguous(memory_format=torch.channels_last)
            with torch.autocast(device.type, dtype):
                loss = nn.functional.cross_entropy(model(pictures), kinds, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            step += 1
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.3f}")
            pace.step()


if __name__ == "__main__":
    main()
