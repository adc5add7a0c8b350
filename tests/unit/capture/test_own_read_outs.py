"""Functions of the job's own source that only read values out of tensors."""

import pytest

from perfdoctor.capture.own_read_outs import find_read_outs
from perfdoctor.results.edits import parse

STATISTICS = """\
def record(module, inputs, output):
    values, order = output.detach().float().flatten().sort()
    entry = self.stats.setdefault(name, {"mean": [], "std": []})
    entry["mean"].append(values.mean().item())
    picks = [values[index].item() for index in wanted]
    self.seen[name] = picks + [values.std().item()]
    del entry["mean"][:-100]
"""
CHANGES_OUTPUT = (
    "def adapt(module, inputs, output):\n    print(output.mean().item())\n    return output + low(inputs[0])"
)
SETS_WEIGHTS = """\
def normalise(module, inputs):
    scale = module.original.norm().item()
    module.weight = module.original / scale
"""
KEEPS_LOSS = """\
def deep(module, inputs, output):
    loss = output.square().mean()
    losses.append(loss)
    log.append(loss.item())
"""
UPDATES = """\
def update(parameter):
    parameter.data.add_(parameter.grad, alpha=-rate)
    norms.append(parameter.grad.norm().item())
"""
STEPS = "def update(parameter):\n    optimizers[parameter].step()\n    norms.append(parameter.grad.norm().item())"


@pytest.mark.parametrize(
    ("source", "reads_out"),
    [
        (STATISTICS, True),
        ("def note(gradient):\n    norms.append(gradient.norm().item())\n    return None", True),
        (CHANGES_OUTPUT, False),
        (SETS_WEIGHTS, False),
        (KEEPS_LOSS, False),
        (UPDATES, False),
        (STEPS, False),
        ("def keep(module, inputs, output):\n    features.append(output.detach())", False),
    ],
    ids=["statistics", "norm", "adapter", "spectral norm", "part of the loss", "by hand", "optimizer", "features"],
)  # fmt: skip
def test_functions_that_only_read_values_out(source: str, reads_out: bool) -> None:
    assert bool(find_read_outs("job.py", parse(source))) is reads_out
