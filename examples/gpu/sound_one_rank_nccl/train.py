"""One rank of DistributedDataParallel, over NCCL where there is a GPU."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import accelerator
import common
import models

LAYERS, WIDTH, LENGTH = 8, 1024, 512


def main() -> None:
    run = common.start(__doc__)
    device = accelerator.device()
    batch = accelerator.sized(32, tiny=1)
    backend = dist.get_default_backend_for_device(device)
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    network = models.Transformer(*((64, 1) if accelerator.on_cpu() else (WIDTH, LAYERS)), heads=16).to(device)
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    half = accelerator.half()
    scaler = torch.amp.GradScaler(device.type, enabled=half is torch.float16)
    for series, labels in accelerator.steps(run, models.series(batch, LENGTH, device)):
        with torch.autocast(device.type, half):
            loss = nn.functional.cross_entropy(model(series), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
