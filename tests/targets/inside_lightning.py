"""Trains on random digits with Lightning's Trainer, under perfdoctor's callback."""

# ruff: noqa: TID253
import importlib
import logging
import sys
import warnings
from pathlib import Path

from torch import nn
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).parent))
from fitting import Digits, Slow, busy, data, enough, network, parse, tell, wanted

CALL = nn.Module.__call__


def module(pl, options):
    class Classifier(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def training_step(self, batch, number):
            busy(options.step_ms)
            self.trainer.should_stop = enough(options, self.global_step, CALL)
            images, targets = batch
            return nn.functional.cross_entropy(self.network(images), targets)

        def validation_step(self, batch, number):
            self.network(batch[0])

        def configure_optimizers(self):
            return Slow(self.parameters(), lr=0.01)

    return Classifier()


def main():
    options = parse()
    pl = importlib.import_module(options.package)
    from perfdoctor.lightning import DiagnoseCallback

    warnings.filterwarnings("ignore", module=r"lightning|pytorch_lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    loaders = [DataLoader(data(options), 16, num_workers=options.workers)]
    if options.validate:
        loaders.append(DataLoader(Digits(64, options.item_ms), 16))
    callback = DiagnoseCallback(**wanted(options))
    model = module(pl, options)
    ranks = {"strategy": "ddp", "devices": options.ranks} if options.ranks > 1 else {"devices": 1}
    for _ in range(2 if options.twice else 1):
        trainer = pl.Trainer(
            accelerator="cpu", max_steps=options.steps or 1000, accumulate_grad_batches=options.accumulate,
            callbacks=[callback], logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, **ranks,
        )  # fmt: skip
        trainer.fit(model, *loaders)
    tell(callback, CALL, model)


if __name__ == "__main__":
    main()
