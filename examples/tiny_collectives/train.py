"""Two ranks average the gradients of a deep, narrow net parameter by parameter: hundreds of collectives."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import common


def average_one_by_one(parameters: list[nn.Parameter]) -> None:
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def average_at_once(parameters: list[nn.Parameter]) -> None:
    flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for parameter, piece in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.grad.copy_(piece.view_as(parameter))


def main() -> None:
    common.under_torchrun()
    run = common.start(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    images, labels = common.digits()
    layers = [layer for _ in range(60) for layer in (nn.Linear(96, 96), nn.LayerNorm(96), nn.ReLU())]
    model = nn.Sequential(nn.Linear(64, 96), *layers, nn.Linear(96, 10))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    average = average_one_by_one if run.bottleneck else average_at_once
    for batch, targets in run.steps(common.shuffled(images, labels, size=1024)):
        loss = nn.functional.cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        average(parameters)
        optimizer.step()
    common.leave_group()


if __name__ == "__main__":
    main()
