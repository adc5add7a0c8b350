"""A training of several ranks, one of which takes longer to prepare its batches: LATE_RANK, by LATE_S."""

import os
import random
import time

import torch  # noqa: TID253
import torch.distributed as dist  # noqa: TID253
from torch import nn  # noqa: TID253
from torch.nn.parallel import DistributedDataParallel  # noqa: TID253

SECONDS = float(os.environ.get("TRAIN_S", "40"))
USUAL_S = 0.03


def prepare(late_s: float) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch from a store that answers after some time."""
    time.sleep((USUAL_S + late_s) * random.uniform(0.6, 1.4))
    return torch.randn(64, 256), torch.randint(0, 10, (64,))


def main() -> None:
    """Trains for some seconds."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    late = dist.get_rank() == int(os.environ.get("LATE_RANK", "-1"))
    late_s = float(os.environ.get("LATE_S", "0.06")) if late else 0.0
    width = int(os.environ.get("WIDTH", "256"))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ends = time.monotonic() + SECONDS
    more = torch.ones(1)
    while more.item():
        inputs, targets = prepare(late_s)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        torch.autograd.backward(loss)
        optimizer.step()
        more = torch.tensor([float(time.monotonic() < ends)])
        dist.all_reduce(more, dist.ReduceOp.MIN)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
