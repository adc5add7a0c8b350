"""Images are copied to the device as float32, from ordinary memory or ahead from pinned memory."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common

SIZE = 224
Batch = tuple[torch.Tensor, torch.Tensor]


def held_batches(count: int, pinned: bool) -> list[Batch]:
    """Batches of a data set that is held in the host's memory."""
    made = [
        (torch.rand(count, 3, SIZE, SIZE), torch.randint(10, (count,)))
        for _ in range(4)
    ]  # fmt: skip
    return [(images.pin_memory(), labels.pin_memory()) for images, labels in made] if pinned else made


def copied_ahead(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """The same batches on the device; the next one is on its way meanwhile."""
    module = torch.get_device_module(device)
    stream = module.Stream()

    def fetch() -> Batch:
        images, labels = next(batches)
        with module.stream(stream):
            return images.to(device, non_blocking=True), labels.to(device, non_blocking=True)

    coming = fetch()
    while True:
        module.current_stream().wait_stream(stream)
        here = coming
        for column in here:
            column.record_stream(module.current_stream())
        coming = fetch()
        yield here


def main() -> None:
    run = common.start(__doc__)
    device = accelerator.device()
    on_gpu = not accelerator.on_cpu()
    model = nn.Sequential(
        nn.Conv2d(3, 256, 16, stride=16), nn.ReLU(), nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    source = itertools.cycle(held_batches(accelerator.sized(256, tiny=4), pinned=on_gpu and not run.bottleneck))
    batches = source if run.bottleneck or not on_gpu else copied_ahead(source, device)
    for images, labels in accelerator.steps(run, batches):
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
