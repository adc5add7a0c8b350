"""A ResNet-50 in mixed precision and channels-last learns where in two photographs its crops come from.

cause: gpu.compute
needs: a GPU
"""

import numpy as np
import pace
import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, BATCH = (64, 8) if pace.tiny() else (224, 144)


class Crops(Dataset):
    """Random crops, as bytes; the label is the photograph and the place, on a coarse grid."""

    def __init__(self, length):
        self.photographs = [np.ascontiguousarray(picture) for picture in pace.photographs()]
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        number = index % 2
        rng = np.random.default_rng(index)
        top, left = int(rng.integers(427 - SIZE)), int(rng.integers(640 - SIZE))
        crop = self.photographs[number][top : top + SIZE, left : left + SIZE]
        if rng.random() < 0.5:
            crop = crop[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(crop)), number * 400 + top // 24 * 20 + left // 32


def main():
    device = pace.device()
    torch.manual_seed(0)
    loader = DataLoader(
        Crops(1_000_000),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=2 if pace.tiny() else 10,
        pin_memory=device.type == "cuda",
        persistent_workers=True,
    )
    model = torchvision.models.resnet50(weights=None).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-5, nesterov=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 1000))
    mean = torch.tensor([123.7, 116.3, 103.5], device=device).view(1, 3, 1, 1)
    deviation = torch.tensor([58.4, 57.1, 57.4], device=device).view(1, 3, 1, 1)
    total, step = torch.zeros((), device=device), 0
    while True:
        for crops, places in loader:
            crops = crops.to(device, non_blocking=True).permute(0, 3, 1, 2)
            places = places.to(device, non_blocking=True)
            crops = (crops.float() - mean) / deviation
            with torch.autocast(device.type, torch.bfloat16):
                loss = nn.functional.cross_entropy(model(crops), places, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
            step += 1
            if step % 50 == 0:
                print(f"step {step} loss {total.item() / 50:.3f}")
                total.zero_()
            pace.step()


if __name__ == "__main__":
    main()
