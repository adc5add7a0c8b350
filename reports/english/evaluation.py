"""Passes without gradients: evaluations that take a good part of the training's time."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import one_in, percent, twice_the_batch


def passes() -> str:
    return "Calling the model without training it (evaluation)"


def passes_refuted() -> str:
    return (
        "Leave the evaluation out for some hundred steps: if the pace stays the same, it does not take the time. Where "
        "training needs what these passes make (rollouts, a teacher's output), doing them more rarely is no cure."
    )


def less_often(*, share: float, line: str | None, times: int, bearable: float, loop: str, when: str) -> Fix:
    where = f" at {line}" if line else ""
    changes = {
        "lightning": f"Trainer(..., check_val_every_n_epoch={times})\n"
        "# within an epoch: val_check_interval, so many times what it is",
        "transformers": f"TrainingArguments(..., eval_steps={times} * eval_steps)\n"
        "# with eval_strategy='steps'; by epochs it evaluates after each",
    }
    return Fix(
        "Evaluate less often",
        f"These passes{where} change no parameter, and with their batches they take {percent(share)} of the time; with "
        f"{times} times as many steps between them they take {percent(bearable)}.",
        changes.get(loop, one_in(times, "evaluate()", when)),
    )


def subset(*, times: int, loop: str) -> Fix:
    part = f"torch.utils.data.Subset(held_out, range(0, len(held_out), {times}))"
    changes = {
        "lightning": f"Trainer(..., limit_val_batches={1 / times:.2g})",
        "transformers": f"Trainer(..., eval_dataset=eval_dataset.select(range(0, len(eval_dataset), {times})))",
    }
    return Fix(
        "Evaluate on a part of the data",
        f"During training, a fixed one in {times} samples shows the trend; the whole set is needed only for final "
        "results. An evaluation that generates its own inputs generates fewer.",
        changes.get(loop, f"held_out = {part}  # before the loader is made"),
    )


def larger_batches(*, loader: bool) -> Fix:
    return Fix(
        "Evaluate in larger batches",
        "Without gradients no activations are kept, so the memory of a training step holds several times the batch, "
        "and fewer operators are called per sample.",
        twice_the_batch(loader),
    )


def inference_mode(*, line: str | None) -> Fix:
    where = f"around {line}" if line else "around the evaluation"
    return Fix(
        "Evaluate in inference mode",
        "Autograd then records nothing, and does not even count versions of tensors as it does under torch.no_grad. If "
        "gradients are on today, the memory of all activations is saved too.",
        f"""\
model.eval()
with torch.inference_mode():  # {where}
    evaluate()
model.train()""",
    )
