"""Loops in the job's own source: which are found, and which are none that one operation may stand for."""

from textwrap import dedent

import pytest

from perfdoctor.capture.own_source.loops import find_loops
from perfdoctor.recording.own_source import SourceComprehension, SourceLoop
from perfdoctor.results.edits import parse


def found(source: str) -> list[tuple[int, int]]:
    rows = find_loops("job.py", parse(dedent(source).strip("\n")))
    return [(loop.line, loop.last_line) for loop in rows if isinstance(loop, SourceLoop)]


@pytest.mark.parametrize(
    "loop",
    [
        "for i in range(len(embedded)):\n    total += (embedded[i] - embedded).norm()",
        "for p in self.model.parameters():\n    p.mul_(0.9)",
        "for p, q in zip(self.model.parameters(), self.average.parameters()):\n    q.lerp_(p, 0.1)",
        "for name, value in model.state_dict().items():\n    average[name].mul_(d).add_(value)",
        "for t in range(x.size(1)):\n    h = self.cell(x[:, t], h)",
        "for row in batch:\n    out.append(row.matmul(weight))",
        "while error > 1e-3:\n    x = x - step * gradient(x)",
        "losses = [\n    criterion(a, b) for a, b in zip(x, y)]",
        "sums = {key: value.sum() for key,\n value in parts.items()}",
        "first, *others = [criterion(a, b)\n for a, b in zip(x, y)]",
        "sums = [(row * scale).sum() for row in batch\n for scale in (1, 2)]",
    ],
)
def test_loops_over_elements_samples_parameters_and_steps_of_a_sequence(loop: str) -> None:
    assert found(loop) == [(1, 2)] or found(loop) == [(1, 2), *found(loop)[1:]]


@pytest.mark.parametrize(
    "loop",
    [
        "for layer in self.layers:\n    x = layer(x)",
        "for layer, norm in zip(self.layers, self.norms):\n    x = x + layer(norm(x))",
        "for i in range(len(self.layers)):\n    x = self.layers[i](x)",
        "for i in range(4):\n    x = getattr(self, f'layer{i}')(x)",
        "for block in self.blocks:\n    x = x + block.attention(block.norm(x))",
        "for i, block in enumerate(self.blocks):\n    x = block.forward(x)",
        "outputs = [head(x) for head in self.heads]",
        "while True:\n    yield torch.randn(8)",
        "for file in files:\n    yield from read(file)",
        "q, k, v = (one.unflatten(-1, shape).transpose(1, 2) for one in self.qkv(x).chunk(3, -1))",
        "mean, deviation = [one.exp() for one in both]",
        "for weight, loss in ((1.0, first), (0.4, second)):\n    total += weight * loss",
        "images, targets = [one.to(device) for one in (images, targets)]",
    ],
)
def test_loops_over_what_they_call_what_is_listed_and_those_of_generators_are_none(loop: str) -> None:
    assert not found(loop)


def test_of_loops_in_loops_each_is_found() -> None:
    assert found(
        """
        for t in range(9):
            for layer in self.layers:
                x = layer(x)
            for i in range(3):
                x[i] += 1
        """
    ) == [(1, 5), (4, 5)]


@pytest.mark.parametrize(
    ("loop", "carries"),
    [
        ("for t in range(9):\n    h = self.cell(x[:, t], h)\n    out.append(h)", True),
        ("for t in range(9):\n    h, c = self.cell(x[:, t], (h, c))", True),
        ("for t in range(9):\n    self.h = self.cell(x[:, t], self.h)", True),
        ("for t in range(9):\n    action = policy(seen)\n    seen, reward = step(action)", True),
        ("for i in range(9):\n    h = self.block(x)\n    x = x + h", True),
        ("while error > 1:\n    x = x - rate * gradient(x)\n    error = f(x)", True),
        ("for i in range(9):\n    if i > 3:\n        last = f(last)\n    else:\n        last = x", True),
        ("for i in range(9):\n    for j in range(9):\n        row[j] = min(row[j - 1], cost[i][j])", True),
        ("for i in range(9):\n    out[i] = f(x[i])\n    losses.append(g(out))", True),
        ("for i in range(9):\n    row = [0] * 9\n    for j in range(9):\n        row[j] = row[j - 1] + 1", False),
        ("for i in range(9):\n    machine(x[i])", True),  # a layer with a memory of its own
        ("for i in range(9):\n    out[i] = machine(nothing)", True),  # so is this
        ("for i in range(9):\n    out.append(self.cell(x, self.width))", True),
        ("for i in range(9):\n    out[i] = f(x, i)", False),
        ("for t, rows in enumerate(x):\n    part = cat([r[y] for r, y in zip(rows, y[t])])\n    total += part", False),
        ("for t in range(9):\n    y = cat([f(one) for one in y])", True),
        ("for i in range(9):\n    y = g(i)\n    out[i] = f(y)", False),
        ("for i in range(9):\n    out[i] = randn(width) + torch.zeros(width) + float(width)", False),
        ("for _ in range(9):\n    action = policy(env.observe())\n    reward = env.act(action)", True),
        ("for a in anchors:\n    near = a - x\n    total += near.norm() * near.shape[0]", False),
        ("for a, b in pairs:\n    states.append(step(a, b, states[-1]))", True),
        ("for t in range(9):\n    y = f(self.states[-1])\n    self.states.append(y)", True),
        ("for t in range(9):\n    rows = []\n    rows.append(x[t])\n    y = f(rows[-1])", False),
        ("for a in anchors:\n    losses.append((a - x).norm())\n    print(losses[-1])", False),
        ("for child in tree.children:\n    self.forward(child, inputs)", True),
        ("for i in range(simulations):\n    self.tree.search(board)", True),
        ("for a in anchors:\n    self.losses.append((a - x).norm())\n    print(a)", False),
        ("for name, p in named:\n    writer.add_histogram(name, p)\n    self.log(name, p.norm())", False),
        ("for p, q in pairs:\n    q.mul_(0.9)\n    self.mean[p].add_(q)\n    nn.init.zeros_(p)", False),
        ("for i in range(9):\n    loss(x[i]).backward()", False),
        ("for metric in metrics:\n    metric.compare(x, y)", False),
        ("for i in range(9):\n    x[i] = x[i] * 2", False),
        ("for i in range(9):\n    out[i] = f(x[i])", False),
        ("for a in anchors:\n    d = (a - x).norm()\n    losses.append(d)", False),
        ("for a in anchors:\n    total += (a - x).norm()", False),
        ("for a in anchors:\n    total = total + (a - x).norm()", False),
        ("while t < 9:\n    out.append(f(x[t]))\n    t += 1", False),
        ("for p in parameters:\n    p.data = p.data * 0.9", False),
        ("for name, value in state.items():\n    old = kept[name]\n    new[name] = 0.9 * old + value", False),
        ("for i in range(9):\n    for j in range(9):\n        same = x[i] * x[j]\n        out.append(same)", False),
        ("for i in range(9):\n    with torch.no_grad():\n        y = f(x[i])\n    z = y + 1", False),
    ],
)
def test_rounds_that_need_the_one_before_are_told_from_others(loop: str, carries: bool) -> None:
    first = next(find_loops("job.py", parse(loop)))
    assert isinstance(first, SourceLoop)
    assert first.carries is carries


def test_what_the_rounds_of_a_comprehension_call_is_kept() -> None:
    source = "results = box.run([to_source(row, size()) for row in tokens.tolist() if row.any()\n for x in parts(row)])"
    [row] = [one for one in find_loops("job.py", parse(source)) if isinstance(one, SourceComprehension)]
    assert row == SourceComprehension("job.py", 1, 2, "any parts size to_source")
