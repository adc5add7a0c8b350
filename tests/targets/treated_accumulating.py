"""Two ranks that accumulate gradients over some passes, in every third step over fewer, and exchange them in each."""

import itertools
from typing import Any


def main() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = torch.Generator().manual_seed(dist.get_rank())
    for step in itertools.count():
        for _ in range(2 if step % 3 == 2 else 4):
            loss = (model(torch.randn(8, 64, generator=rows)) - 1).square().mean()
            (loss / 4).backward()
        optimizer.step()
        optimizer.zero_grad()
        require_the_same(next(model.parameters()).detach())


def require_the_same(mine: Any) -> None:
    """Ends the job if ranks have other parameters."""
    import torch.distributed as dist

    theirs = mine.clone()
    dist.broadcast(theirs, 0)
    if not theirs.equal(mine):
        raise RuntimeError("the ranks differ")


if __name__ == "__main__":
    main()
