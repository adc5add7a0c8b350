"""What the job's own source computes without gradients."""

from textwrap import dedent

import pytest

from perfdoctor.capture.own_gradients import find_no_grad
from perfdoctor.results.edits import parse


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def record(module, inputs, output):\n    stats.append(output.detach().std().item())", [(1, 2, False)]),
        ("def record(module, inputs, output):\n    seen.append(output.std().item())\n    return None", [(1, 3, False)]),
        # What it returns may be trained, and what it keeps may be a part of the loss.
        ("def adapt(module, inputs, output):\n    return output + low(inputs[0].detach())", []),
        ("def keep(module, inputs, output):\n    losses.append(output.square().mean())", []),
        ("@torch.no_grad()\ndef update(model):\n    for one in model: one.mul_(0.9)", [(2, 3, False)]),
        ("def score(x):\n    with torch.inference_mode():\n        y = x.argmax()\n    return y", [(2, 3, True)]),
        ("with torch.set_grad_enabled(trains):\n    y = model(x)", []),
        ("with torch.no_grad():\n    y = model(x)", [(1, 2, False)]),
        # A function in it is another one.
        ("def outer(x):\n    def inner(y):\n        print(y.item())\n    return inner", [(2, 3, False)]),
    ],
)  # fmt: skip
def test_lines_through_which_no_backward_pass_goes(source: str, found: list[tuple[int, int, bool]]) -> None:
    rows = find_no_grad("job.py", parse(dedent(source)))
    assert [(row.line, row.last_line, row.returns) for row in rows] == found
