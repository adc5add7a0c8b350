"""Trains on random digits with the Hugging Face Trainer, under perfdoctor's callback."""

# ruff: noqa: TID253
import sys
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from perfdoctor.transformers import DiagnoseCallback

sys.path.insert(0, str(Path(__file__).parent))
from fitting import Digits, Slow, busy, data, enough, network, parse, tell, wanted

CALL = nn.Module.__call__


class Classifier(nn.Module):
    """Gives its loss, as models of transformers do."""

    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, images, labels):
        logits = self.network(images)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main():
    options = parse()
    arguments = TrainingArguments(
        output_dir="out", max_steps=options.steps or 1000, gradient_accumulation_steps=options.accumulate,
        per_device_train_batch_size=16, per_device_eval_batch_size=16, dataloader_num_workers=options.workers,
        eval_strategy="epoch" if options.validate else "no", save_strategy="no", report_to="none", use_cpu=True,
        logging_strategy="no", disable_tqdm=True, remove_unused_columns=False, dataloader_pin_memory=False,
    )  # fmt: skip
    callback = DiagnoseCallback(**wanted(options))
    model = Classifier()

    class Training(Trainer):
        def training_step(self, *given, **more):
            busy(options.step_ms)
            self.control.should_training_stop |= enough(options, self.state.global_step, CALL)
            return super().training_step(*given, **more)

    for _ in range(2 if options.twice else 1):
        trainer = Training(
            model=model, args=arguments, train_dataset=data(options), eval_dataset=Digits(64, options.item_ms),
            data_collator=lambda items: {
                "images": torch.stack([image for image, _ in items]),
                "labels": torch.tensor([label for _, label in items]),
            },
            callbacks=[callback], optimizers=(Slow(model.parameters(), lr=0.01), None),
        )  # fmt: skip
        trainer.train()
    tell(callback, CALL, model)


if __name__ == "__main__":
    main()
