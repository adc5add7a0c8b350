"""A convolutional network whose activations are watched: hooks on all its layers keep quantiles of what they put out.

cause: cpu.python_overhead
fixed: the hooks look at one step of fifty.
"""

import pace
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
images, labels = pace.digits()
quantiles = torch.tensor([0.01, 0.5, 0.99])


class Watch:
    """Keeps the last quantiles of every layer, for a page that somebody may look at."""

    def __init__(self, model):
        self.seen, self.calls = {}, 0
        for name, layer in model.named_modules():
            if not list(layer.children()):
                layer.register_forward_hook(lambda *called, name=name: self.note(name, called[-1]))
                layer.register_full_backward_hook(lambda *called, name=name: self.note(f"of {name}", called[-1][0]))

    def note(self, name, values):
        if values is not None and (pace.bottleneck() or self.calls % 50 == 0):
            flat = values.detach().flatten()[:20_000]
            self.seen[name] = [*torch.quantile(flat, quantiles).tolist(), flat.std().item()]


model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(),
    nn.Conv2d(48, 96, 3, padding=1), nn.BatchNorm2d(96), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(96, 192, 3, padding=1), nn.BatchNorm2d(192), nn.ReLU(), nn.Flatten(), nn.Linear(3072, 10),
)  # fmt: skip
watch = Watch(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
while True:
    order = torch.randperm(len(images))
    for begin in range(0, len(order) - 128, 128):
        chosen = order[begin : begin + 128]
        loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.calls += 1
        pace.step()
