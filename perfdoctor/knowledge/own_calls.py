"""Calls in the job's own source that are looked for.

Those whose arguments advice changes: names that take the same arguments, together. And those that train.
"""

LOADERS = frozenset(("DataLoader", "StatefulDataLoader"))  # torchdata's takes what torch's does, and more
# Those of torch.optim that have ``fused`` (its documentation, "Algorithms").
OPTIMIZERS = frozenset(("Adam", "AdamW", "SGD", "Adagrad"))
THREADS = frozenset(("set_num_threads",))
BACKWARD = "backward"

ALIKE: tuple[frozenset[str], ...] = (
    LOADERS,
    OPTIMIZERS,
    frozenset(("TrainingArguments", "Seq2SeqTrainingArguments")),
    frozenset(("Trainer",)),
    THREADS,
)
NAMES = frozenset[str]().union(*ALIKE)
# Of which packages: others have some of the names for what takes other arguments.
PACKAGES = frozenset(("torch", "torchdata", "transformers", "lightning", "pytorch_lightning"))
