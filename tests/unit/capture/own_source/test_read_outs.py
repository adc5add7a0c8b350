"""Functions of the job's own source that only read values out of tensors."""

import pytest

from perfdoctor.capture.own_source.read_outs import find_read_outs
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
GIVEN_NONE = """\
def average(self):
    for name in self.now:
        self.kept[name] = 0.9 * self.kept[name] + self.now[name].float()
"""
STEPS = "def update(parameter):\n    optimizers[parameter].step()\n    norms.append(parameter.grad.norm().item())"


CHANGING = {
    "a gradient": "    norm = tensor.norm().item()\n    tensor *= 1 / norm",
    "a weight": "    module.weight.data /= module.weight.norm().item()",
    "items": "    seen.append(tensor.mean().item())\n    tensor[:, 3] = 0",
    "in a call": "    log.append(tensor.mean().item())\n    F.relu(tensor, inplace=True)",
    "into another": "    log.append(tensor.mean().item())\n    torch.mul(tensor, 2, out=module.used)",
    "between ranks": "    dist.all_reduce(module.grad)\n    norms.append(module.grad.norm().item())",
    "a total outside": "    global total\n    total += tensor.pow(2).mean()\n    log.append(tensor.mean().item())",
    "somebody else": "    loss = tensor.pow(2).mean()\n    module.add_loss(loss)\n    log.append(loss.item())",
    "by keyword": "    kept.update(loss=tensor.mean())\n    log.append(tensor.mean().item())",
}
READING = {
    "rounded": "    stats[name] = round(tensor.std().item(), 3)",
    "with a name": "    stats.append((name, step, tensor.std().item()))",
    "float": "    log.append(float(tensor.std()))",
    "a mean": "    self.n += 1\n    self.mean += (tensor.mean().item() - self.mean) / self.n",
    "written": "    writer.add_histogram('x', tensor.detach().cpu().numpy(), step)",
    "zipped": "    values = torch.quantile(tensor.flatten(), at).tolist()\n    log[name] = dict(zip(keys, values))",
}


@pytest.mark.parametrize("body", CHANGING.values(), ids=CHANGING)
def test_what_changes_or_keeps_tensors_does_more_than_read_out(body: str) -> None:
    assert not find_read_outs("job.py", parse(f"def hook(module, tensor):\n{body}"))


@pytest.mark.parametrize("body", READING.values(), ids=READING)
def test_numbers_may_be_kept_in_any_way(body: str) -> None:
    assert find_read_outs("job.py", parse(f"def hook(self, tensor):\n{body}"))


@pytest.mark.parametrize(
    ("source", "reads_out"),
    [
        (STATISTICS, True),
        ("def note(gradient):\n    norms.append(gradient.norm().item())\n    return None", True),
        (CHANGES_OUTPUT, False),
        (SETS_WEIGHTS, False),
        (KEEPS_LOSS, False),
        (GIVEN_NONE, False),
        (UPDATES, False),
        (STEPS, False),
        ("def keep(module, inputs, output):\n    features.append(output.detach())", False),
    ],
    ids=[
        "statistics", "norm", "adapter", "spectral norm", "part of the loss", "average", "by hand", "optimizer",
        "features",
    ],
)  # fmt: skip
def test_functions_that_only_read_values_out(source: str, reads_out: bool) -> None:
    assert bool(find_read_outs("job.py", parse(source))) is reads_out
