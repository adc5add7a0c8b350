"""A classifier trained with a Trainer class; its data collator masks whole words in Python, token by token.

cause: cpu.input_preprocessing
fixed: the collator masks the whole batch with tensor operations.
"""

import random
import re
from dataclasses import dataclass

import pace
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class TrainingArguments:
    per_device_train_batch_size: int = 32
    learning_rate: float = 3e-4
    max_grad_norm: float = 1.0
    logging_steps: int = 50


class Lines(Dataset):
    def __init__(self, length=96):
        words = re.findall(r"\w+|[^\w\s]", pace.sources()[:800_000])
        self.ids = {word: i + 2 for i, word in enumerate(sorted(set(words)))}
        tokens = [self.ids[word] for word in words]
        self.examples = [tokens[i : i + length] for i in range(0, len(tokens) - length, length)]

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, index):
        return {"input_ids": self.examples[index]}


class WholeWordCollator:
    def __call__(self, features):
        rows, labels = [], []
        for feature in features:
            row, label = [], []
            for token in feature["input_ids"]:
                draw = random.random()
                masked = draw < 0.15
                label.append(token if masked else -100)
                row.append((1 if random.random() < 0.8 else random.randrange(2, 5000)) if masked else token)
            rows.append(row)
            labels.append(label)
        return {"input_ids": torch.tensor(rows), "labels": torch.tensor(labels)}


class TensorCollator:
    def __call__(self, features):
        inputs = torch.tensor([feature["input_ids"] for feature in features])
        masked = torch.rand(inputs.shape) < 0.15
        labels = inputs.masked_fill(~masked, -100)
        return {"input_ids": inputs.masked_fill(masked, 1), "labels": labels}


class Encoder(nn.Module):
    def __init__(self, size, width=64):
        super().__init__()
        self.embedding = nn.Embedding(size, width)
        self.convolutions = nn.Sequential(
            nn.Conv1d(width, width, 5, padding=2), nn.GELU(), nn.Conv1d(width, width, 5, padding=2)
        )
        self.head = nn.Linear(width, 256)

    def forward(self, input_ids, labels):
        hidden = self.convolutions(self.embedding(input_ids).transpose(1, 2)).transpose(1, 2)
        targets = torch.where(labels < 0, labels, labels % 256)
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten(), ignore_index=-100)


class Trainer:
    def __init__(self, model, args, train_dataset, data_collator):
        self.model, self.args = model, args
        size = args.per_device_train_batch_size
        self.loader = DataLoader(train_dataset, size, shuffle=True, collate_fn=data_collator)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
        self.global_step, self.total = 0, torch.zeros(())

    def training_step(self, inputs):
        self.model.train()
        loss = self.model(**inputs)
        loss.backward()
        return loss.detach()

    def train(self):
        while True:
            for inputs in self.loader:
                self.total += self.training_step(inputs)
                nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.global_step += 1
                if self.global_step % self.args.logging_steps == 0:
                    print({"loss": self.total.item() / self.args.logging_steps, "step": self.global_step})
                    self.total.zero_()
                pace.step()


torch.set_num_threads(1)
dataset = Lines()
collator = WholeWordCollator() if pace.bottleneck() else TensorCollator()
Trainer(Encoder(len(dataset.ids) + 2), TrainingArguments(), dataset, collator).train()
