"""The Trainer of transformers fine-tunes a BERT on passages of code, which the collator splits into word pieces.

cause: cpu.input_preprocessing
needs: a GPU
fixed: eight workers of the loader collate.
"""

import random
import re
import unicodedata
from collections import Counter

import pace
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

LENGTH = 32 if pace.tiny() else 256
WORD = re.compile(r"\w+|[^\w\s]")


class Passages(torch.utils.data.Dataset):
    """Passages of the standard library, and whether they define a class."""

    def __init__(self, text, size, length):
        self.text, self.size, self.length = text, size, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        start = index * 7919 % (len(self.text) - self.size)
        passage = self.text[start : start + self.size]
        return {"text": passage, "label": int("class " in passage)}


class WordPieces:
    """Splits words into the longest pieces that the vocabulary has, as BERT does."""

    def __init__(self, text, size=4000):
        counts = Counter(word.lower() for word in WORD.findall(text[:1_500_000]))
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        letters = sorted({letter for word in counts for letter in word})
        pieces += letters + ["##" + letter for letter in letters]
        pieces += [word for word, _ in counts.most_common(size) if len(word) > 1]
        pieces += ["##" + word for word, _ in counts.most_common(size // 4) if len(word) > 1]
        self.ids = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}

    def split(self, word):
        found, start = [], 0
        while start < len(word):
            end = len(word)
            while end > start:
                piece = ("##" if start else "") + word[start:end]
                if piece in self.ids:
                    found.append(self.ids[piece])
                    break
                end -= 1
            else:
                return [1]
            start = end
        return found

    def words(self, text):
        """Cleans the text and separates punctuation, character by character."""
        cleaned = []
        for letter in unicodedata.normalize("NFD", text.lower()):
            category = unicodedata.category(letter)
            if category == "Mn" or letter == "\ufffd":
                continue
            if letter in "\t\n\r" or category == "Zs":
                cleaned.append(" ")
            elif category.startswith("C"):
                continue
            elif category.startswith(("P", "S")) and letter != "_":
                cleaned.append(f" {letter} ")
            else:
                cleaned.append(letter)
        return "".join(cleaned).split()

    def encode(self, text):
        ids = [2]
        for word in self.words(text):
            ids.extend(self.split(word))
        return [*ids[: LENGTH - 1], 3]

    def __call__(self, rows):
        encoded = [self.encode(row["text"]) for row in rows]
        padded = [ids + [0] * (LENGTH - len(ids)) for ids in encoded]
        ids = torch.tensor(padded)
        return {
            "input_ids": ids,
            "attention_mask": (ids != 0).long(),
            "labels": torch.tensor([row["label"] for row in rows]),
        }


class Pace(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        pace.step()


def main():
    random.seed(0)
    text = pace.sources()
    pieces = WordPieces(text)
    config = BertConfig(
        vocab_size=len(pieces.ids),
        hidden_size=64 if pace.tiny() else 768,
        num_hidden_layers=2 if pace.tiny() else 12,
        num_attention_heads=4 if pace.tiny() else 12,
        intermediate_size=128 if pace.tiny() else 3072,
        num_labels=2,
    )
    workers = 0 if pace.bottleneck() else 8
    arguments = TrainingArguments(
        output_dir="bert-passages",
        max_steps=10_000_000,
        per_device_train_batch_size=8 if pace.tiny() else 64,
        learning_rate=3e-5,
        warmup_steps=500,
        bf16=pace.device().type == "cuda",
        logging_steps=100,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_num_workers=workers,
        dataloader_persistent_workers=workers > 0,
        use_cpu=pace.tiny(),
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Passages(text, 2400, 2_000_000),
        data_collator=pieces,
        callbacks=[Pace()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
