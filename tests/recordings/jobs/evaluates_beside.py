"""A classifier is evaluated in a process beside its training, which takes one of the two cores from it.

The fixed state does not evaluate.

cause: cpu.contention
"""

import multiprocessing

import torch
from pace import bottleneck, step
from torch import nn


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def evaluate(weights, rows: int = 200_000) -> None:
    torch.set_num_threads(1)
    model = network().eval()
    model.load_state_dict(weights)
    with torch.no_grad():
        for _ in range(rows // 250):
            model(torch.randn(250, 512)).argmax(1)


def main() -> None:
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    features, classes = torch.randn(4096, 512), torch.randint(0, 10, (4096,))
    beside, started = None, multiprocessing.get_context("spawn")
    while True:
        for chosen in torch.randperm(4096).split(256):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(features[chosen]), classes[chosen]).backward()
            optimizer.step()
            step()
        if bottleneck() and (beside is None or not beside.is_alive()):
            weights = {name: weight.clone() for name, weight in model.state_dict().items()}
            beside = started.Process(target=evaluate, args=(weights,), daemon=True)
            beside.start()


if __name__ == "__main__":
    main()
