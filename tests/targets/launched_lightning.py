"""The same as launched.py, by Lightning's own launchers: its arguments are the file and the strategy."""

# ruff: noqa: TID253
import sys

import launched
import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self, told):
        super().__init__()
        self.inner, self.told = launched.network(), told

    def training_step(self, batch, index):
        if index == 5:
            launched.say(self.global_rank, self.told)
        return self.inner(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.001)

    def train_dataloader(self):
        return launched.loader(self.global_rank)


def main(told, strategy):
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    ranks = {"accelerator": "cpu", "devices": launched.WORLD, "strategy": strategy, "use_distributed_sampler": False}
    lightning.Trainer(max_epochs=1, **ranks, **quiet).fit(Module(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
