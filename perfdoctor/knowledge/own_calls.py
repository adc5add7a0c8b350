"""Calls in the job's own source whose arguments advice changes: names that take the same arguments, together."""

ALIKE: tuple[frozenset[str], ...] = (
    # torch.utils.data; torchdata.stateful_dataloader's takes the same and more.
    frozenset(("DataLoader", "StatefulDataLoader")),
    # Those of torch.optim that have ``fused`` (its documentation, "Algorithms").
    frozenset(("Adam", "AdamW", "SGD", "Adagrad")),
    frozenset(("TrainingArguments", "Seq2SeqTrainingArguments")),
    frozenset(("Trainer",)),
    frozenset(("set_num_threads",)),
)
NAMES = frozenset[str]().union(*ALIKE)
