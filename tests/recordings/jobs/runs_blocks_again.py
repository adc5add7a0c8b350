"""A small transformer checkpoints every block although memory is free, and runs each forward pass twice.

The fixed state keeps the activations.

cause: cpu.model_compute
"""

import torch
from pace import bottleneck, step
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, BLOCKS = 192, 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(BLOCKS)
        )
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, inputs):
        for block in self.blocks:
            inputs = checkpoint(block, inputs, use_reentrant=False) if bottleneck() else block(inputs)
        return self.head(inputs.mean(1))


def main() -> None:
    torch.manual_seed(0)
    model = Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    sequences, classes = torch.randn(64, 64, WIDTH), torch.randint(0, 10, (64,))
    while True:
        for chosen in torch.randperm(64).split(16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(sequences[chosen]), classes[chosen]).backward()
            optimizer.step()
            step()


if __name__ == "__main__":
    main()
