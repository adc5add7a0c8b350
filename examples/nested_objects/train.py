"""A worker hands over every sample as nested Python objects, and the trainer puts them together."""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


class Annotated(torch.utils.data.Dataset):
    """Digits with an annotation for each of their 64 pixels."""

    def __init__(self) -> None:
        self.images, self.labels = common.digits()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict:
        pixels = [
            {"row": i // 8, "column": i % 8, "name": f"pixel-{i}", "value": value}
            for i, value in enumerate(self.images[index].tolist())
        ]
        return {"label": int(self.labels[index]), "pixels": pixels}


class Plain(Annotated):
    """The same digits as tensors."""

    def __getitem__(self, index: int) -> tuple:
        return self.images[index], int(self.labels[index])


def assemble(samples: list) -> tuple[torch.Tensor, torch.Tensor]:
    values = [[pixel["value"] for pixel in sample["pixels"]] for sample in samples]
    return torch.tensor(values), torch.tensor([sample["label"] for sample in samples])


def main() -> None:
    run = common.start(__doc__)
    torch.set_num_threads(1)
    options = {"batch_size": 128, "shuffle": True, "num_workers": 1, "persistent_workers": True}
    if run.bottleneck:
        loader = torch.utils.data.DataLoader(Annotated(), collate_fn=list, **options)
    else:
        loader = torch.utils.data.DataLoader(Plain(), **options)
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch in run.steps(loader):
        images, targets = assemble(batch) if run.bottleneck else batch
        loss = nn.functional.cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
