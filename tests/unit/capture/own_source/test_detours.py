"""What a job's own source does again, or for nothing."""

from textwrap import indent

import pytest

from perfdoctor.capture.own_source.detours import find_detours
from perfdoctor.results.edits import parse

LOOP = "import torch, numpy as np\nfor step in range(9):\n"


def found(source: str) -> list[tuple[str, str, str, str]]:
    """The detours of a file: which, what stays, what is new, and how the result is put."""
    return [(one.way, one.kept, one.new, one.put) for one in find_detours("job.py", parse(source), source.split("\n"))]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("self.keys = torch.cat([self.keys, new])[-size:]", ("joined_cut", "self.keys", "new", "[at]")),
        ("self.keys = torch.cat((new, self.keys))[:K].clone()", ("joined_cut", "self.keys", "new", "[at]")),
        ("self.keys = torch.cat([self.keys[1:], new])", ("joined_cut", "self.keys", "new", "[at]")),
        ("self.keys = torch.cat([zeros(n), self.age + 1])[:K]", None),
        ("self.age = torch.cat([zeros(n), self.age + 1])[:K]", ("joined_cut", "self.age", "zeros(n)", "[at]")),
        ("self.seen = torch.cat([self.seen, x], dim=1)", ("joined", "self.seen", "x", "[:, at]")),
        ("seen = np.concatenate([seen, x.numpy()])", ("joined", "seen", "x.numpy()", "[at]")),
        ("seen = np.append(seen, x)", ("joined", "seen", "x", "[at]")),
        # Other things are joined, or it is another value in each round: features of a network, for instance.
        ("both = torch.cat([seen, x])", None),
        ("self.keys = torch.cat([a, b, self.keys])", None),
        ("x = up(x)\nx = torch.cat([x, skip], 1)", None),
        ("names = names.append(new)", None),
        ("text = os.path.concat(text, new)", None),
    ],
)
def test_what_is_kept_is_joined_anew(body: str, expected: tuple[str, ...] | None) -> None:
    assert found(LOOP + indent(body, "    ")) == ([expected] if expected else [])


def test_features_are_joined_outside_of_loops_and_by_layers() -> None:
    assert not found("def forward(self, x, skip):\n    x = torch.cat([x, skip], 1)\n    return x\n")
    assert not found("for layer in layers:\n    x = torch.cat([x, layer(x)], 1)\n")


@pytest.mark.parametrize(
    "product",
    [
        "F.one_hot(tokens, n).float() @ self.table",
        "torch.matmul(F.one_hot(tokens, n).to(self.table.dtype), self.table)",
        "one_hot(tokens, n).float().mm(self.table)",
    ],
)
def test_a_table_is_multiplied_by_ones_and_zeros(product: str) -> None:
    assert found(f"x = {product}\n") == [("one_hot", "self.table", "tokens", "")]
    assert not found(f"x = {product.replace('one_hot', 'softmax')}\n")


@pytest.mark.parametrize("layer", ["nn.Linear(n, 8)", "nn.Linear(n, 8, bias=False)", "nn.Linear(n, 8, False)"])
def test_a_layer_is_given_ones_and_zeros(layer: str) -> None:
    source = "def __init__(self):\n    self.into = {}\ndef forward(self, x):\n    {}\n    return self.into({})\n"
    bias = "" if "alse" in layer else "self.into.bias"
    told = [("one_hot_layer", "self.into.weight.T", "x", bias)]
    assert found(source.format(layer, "ones = F.one_hot(x, n).float()", "ones")) == told
    assert found(source.format(layer, "pass", "F.one_hot(x, n).to(torch.float32)")) == told
    assert not found(source.format(layer, "ones = F.softmax(x, n)", "ones"))
    assert not found(source.format(layer, "ones = F.one_hot(x, n).float()\n    ones = ones + noise", "ones"))
    assert not found(source.format("nn.LSTM(n, 8)", "ones = F.one_hot(x, n).float()", "ones"))


def test_a_name_may_stand_for_ones_and_zeros() -> None:
    assert found("def f(x):\n    ones = F.one_hot(x, n)\n    return ones.float() @ table\n") == [
        ("one_hot", "table", "x", "")
    ]


def test_two_passes_go_through_one_graph() -> None:
    passes = "first.backward(retain_graph=True)\n{}(b + c).backward()\n"
    assert found(passes.format("")) == [("two_passes", "first", "b + c", "")]
    assert not found(passes.format("optimizer.step()\n"))
    assert not found("first.backward()\nsecond.backward()\n")  # of two graphs: one may be freed before the next
    assert not found("first.backward(retain_graph=True)\nsecond.backward(gradient)\n")


DERIVATIVES = """
u_x = grad(u, x, torch.ones_like(u), create_graph=True)[0]
{}u_t = grad(u, t, torch.ones_like(u), create_graph=True)[0]
u_xx = grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
"""


def test_derivatives_of_the_same_are_asked_for_one_by_one() -> None:
    call = "grad(u, (x, t), torch.ones_like(u), create_graph=True)"
    assert found(DERIVATIVES.format("")) == [("one_by_one", "u_x, u_t", call, "")]
    assert not found(DERIVATIVES.format("u = u + 1\n"))  # of something else then
    assert not found("u_x = grad(u, x)[0]\nu_y = grad(u, x)[0]\n")
    assert not found("u = grad(u, x)[0]\nu_t = grad(u, t)[0]\n")


HELPER = """
def d(out, by):
    '''One of them.'''
    return torch.autograd.grad(out, by, torch.ones_like(out), create_graph=True)[0]


u_x, u_t = d(u, x), d(u, t)
v_x = d(v, x)
v_t = d(v, t)
u_xx = d(u_x, x)
"""


def test_derivatives_are_asked_for_through_a_function_of_the_job_s_own() -> None:
    call = "torch.autograd.grad({0}, (x, t), torch.ones_like({0}), create_graph=True)"
    assert found(HELPER) == [
        ("one_by_one", "u_x, u_t", call.format("u"), ""),
        ("one_by_one", "v_x, v_t", call.format("v"), ""),
    ]
    # A helper that does more than that, or takes them the other way round.
    assert not found(HELPER.replace("return", "print(out)\n    return"))
    assert not found(HELPER.replace("grad(out, by", "grad(by, out"))


@pytest.mark.parametrize(
    ("layer", "used", "told"),
    [
        ("Linear(8, words)", "self.head(x)[:, -1]", "x[:, -1]"),
        ("Linear(8, words)", "self.head(self.rnn(x)[0])[:, 0, :]", "(self.rnn(x)[0])[:, 0, :]"),
        # Of a matrix these are outputs of the layer, and other layers look at all positions.
        ("Linear(8, words)", "self.head(x)[:, 0]", None),
        ("Linear(8, 1)", "self.head(x)[:, -1]", None),
        ("LSTM(8, words)", "self.head(x)[:, -1]", None),
        ("Linear(8, words)", "self.head(x)", None),
    ],
)
def test_a_layer_computes_what_is_left_out(layer: str, used: str, told: str | None) -> None:
    head = f"class Net(Module):\n    def __init__(self):\n        self.head = nn.{layer}\n"
    source = f"{head}    def forward(self, x):\n        return {used}\n"
    assert found(source) == ([("indexed_late", "self.head", told, "")] if told else [])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("best = copy.deepcopy(model)", True),
        ("best = copy.deepcopy(model)\nhistory.append(best)", False),
        ("best = copy.deepcopy(model)\nself.shown = best", False),
        ("clone = copy.deepcopy(model)\nfit(clone)", False),
    ],
)
def test_a_copy_is_made_into_the_one_before_where_nobody_else_has_that(body: str, told: bool) -> None:
    """What only has a name in one call of a function is not there in the next one."""
    source = "def train(model):\n    best = None\n    while True:\n" + indent(body, "        ")
    assert found(source) == ([("copied", "best", "model", "")] if told else [])


def test_other_ways() -> None:
    assert found("self.best = copy.deepcopy(model)\n") == [("copied", "self.best", "model", "")]
    assert found("import torch\nx = torch.tensor([rows[i] for i in some], dtype=torch.float32)\n") == [
        ("listed", "torch.tensor", "[rows[i] for i in some]", "dtype=torch.float32")
    ]
    assert not found("x = torch.tensor([2 * i for i in some])\n")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("rows = random.sample(self.rows, n)\nx, y = zip(*rows)\nx, y = torch.stack(x), torch.stack(y)", "self.rows"),
        ("rows = random.choices(rows, k=n)\nreturn np.stack([row.x for row in rows])", "rows"),
        ("at = np.random.randint(0, len(rows), n)\nx = np.stack([rows[i][0] for i in at])", "rows"),
        ("x = torch.stack([self.x[i] for i in torch.randperm(n)[:k]])", "self.x"),
        ("rows = replay.draw(n)\nx = torch.cat(Row(*zip(*rows)).x)", "replay.kept"),
        # Nothing is put together, of nothing that was drawn, or by what makes a list of numbers one tensor.
        ("rows = random.sample(rows, n)\nreturn rows", None),
        ("rows = random.sample(rows, n)\nx = torch.stack(others)", None),
        ("rows = random.sample(rows, n)\nrows = load(n)\nx = torch.stack(rows)", None),
        ("x = torch.stack([layer(x) for layer in layers])", None),
        ("rows = random.sample(rows, n)\nx = torch.tensor([2 * row for row in rows])", None),
    ],
)
def test_samples_that_are_drawn_from_a_list_are_put_together(body: str, told: str | None) -> None:
    source = "class Replay:\n    def draw(self, n):\n        return random.sample(self.kept, n)\n"
    kept = {one[1] for one in found(f"{source}def step(n):\n" + indent(body, "    ")) if one[0] == "stacked"}
    assert kept == ({told} if told else set())


PAIR = "for p, q in zip(net.parameters(), target.parameters()):\n"


@pytest.mark.parametrize(
    ("body", "weight"),
    [
        ("q.data.copy_(tau * p.data + (1 - tau) * q.data)", "1 - tau"),
        ("q.data.mul_(1.0 - tau)\nq.data.add_(tau * p.data)", "1.0 - tau"),
        ("q.data.mul_(1 - tau)\ntorch.add(q.data, p.data, alpha=tau, out=q.data)", "1 - tau"),
        ("q.mul_(decay).add_(p.detach(), alpha=1 - decay)", "decay"),
        ("q.data.lerp_(p.data, 1 - decay)", "decay"),
        ("q.data.lerp_(p.data, 0.5 * rate)", "1 - (0.5 * rate)"),
        ("q.data = q.data * self.m + p.data * (1. - self.m)", "self.m"),
        ("q.data.copy_(0.995 * q.data + 0.005 * p.data)", "0.995"),
        ("q.data.mul_(alpha).add_(1 - alpha, p.data)", "alpha"),
        # No mean, a plain copy, and something else besides.
        ("q.data.copy_(0.995 * q.data + 0.05 * p.data)", None),
        ("q.data = q.data * self.m + p.data * 0.5", None),
        ("q.data.copy_(p.data)", None),
        ("q.data.lerp_(p.data, rate)\nseen.append(q)", None),
        ("q.data = tau * p.data + (1 - tau) * q.data * p.data", None),
    ],
)
def test_the_mean_of_two_models_is_kept_parameter_by_parameter(body: str, weight: str | None) -> None:
    expected = [("averaged", "target.parameters()", "net.parameters()", weight)] if weight else []
    assert found(PAIR + indent(body, "    ")) == expected
    assert not found(PAIR.replace("parameters", "buffers") + indent(body, "    "))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("for p in ps:\n    p.data += -lr * p.grad", ("descended", "ps", "lr", "")),
        ("for p in ps:\n    p.data.sub_(p.grad.data * 0.1)", ("descended", "ps", "0.1", "")),
        ("for p in ps:\n    if p.grad is not None:\n        p -= lr * p.grad", ("descended", "ps", "lr", "")),
        ("for n, p in m.named_parameters():\n    p.data = p.data - lr * p.grad",
         ("descended", "m.parameters()", "lr", "")),
        # A step of another kind, and what is no step.
        ("for p in ps:\n    p.data -= lr * p.grad / (p.grad.norm() + 1)", None),
        ("for p in ps:\n    log(p.grad.norm())", None),
        ("for p in ps:\n    p.grad = None", None),
        ("for x in xs:\n    x += 1", None),
    ],
)  # fmt: skip
def test_parameters_are_moved_one_by_one(source: str, expected: tuple[str, ...] | None) -> None:
    assert found(source) == ([expected] if expected else [])


UPDATE = "for group in groups:\n    for p in group:\n        g, s = p.grad, state[p]\n        "
MEAN = "s['m'] = b * s['m'] + (1 - b) * g\n        "


@pytest.mark.parametrize(
    ("body", "is_one"),
    [
        (MEAN + "p.data = p - lr * s['m']", True),
        ("if g is not None:\n            " + MEAN + "p.data -= lr * s['m']", True),
        # In place already; a count; a clipped gradient; what uses no gradient.
        (MEAN + "p.data.add_(s['m'], alpha=-lr)", False),
        ("s['m'].mul_(b).add_(g, alpha=1 - b)\n        p.data = p - lr * (s['m'] + g)", False),
        ("s['t'] = s['t'] + 1", False),
        ("p.grad = p.grad * (scale / (norm + 1))", False),
    ],
)
def test_an_optimizer_makes_new_tensors_of_what_it_keeps(body: str, is_one: bool) -> None:
    ways = [one[0] for one in found(UPDATE + body)]
    assert ways == (["made_new"] if is_one else [])
    assert not found((UPDATE + body).replace("p.grad", "p.other"))


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("settings = GenerationConfig(max_new_tokens=9, use_cache=False)", True),
        ("tokens = model.generate(**prompts, use_cache=False).cpu()", True),
        ("model.config.use_cache = False", True),
        ("model.config.use_cache = True", False),
        ("tokens = model.generate(**prompts, use_cache=cached)", False),
        ("use_cache = False", False),
    ],
)
def test_a_cache_of_keys_and_values_is_switched_off(statement: str, told: bool) -> None:
    assert [way for way, *_ in found(statement)] == ["uncached"] * told


@pytest.mark.parametrize(
    ("statement", "given"),
    [
        ("out, _ = self.attn(q, q, q, attn_mask=causal)", "q, q, q, attn_mask=causal"),
        ("x = x + 0\nx = self.attn(x, key=x, value=x)[0]", "x, key=x, value=x"),
        ("return self.attn(q, k, v, **extra)[0]", "q, k, v, **extra"),
        ("out, _ = self.attn(q, q, q, need_weights=False)", None),
        ("out, weights = self.attn(q, q, q)", None),
        ("weights = self.attn(q, q, q)[1]", None),
        ("out, _ = self.lstm(x, state)", None),
    ],
)
def test_weights_of_attention_that_nobody_takes(statement: str, given: str | None) -> None:
    lines = "".join(f"    {line}\n" for line in statement.split("\n"))
    rows = [one for one in found("def forward(self, x):\n" + lines) if one[0] == "weights_unused"]
    assert rows == ([("weights_unused", "self.attn", given, "")] if given else [])


HEAD = """
class Head(nn.Module):
    def __init__(self, width, classes):
        self.head = nn.Conv2d(width, classes, {kernel})
        self.up = nn.Upsample(scale_factor=2)
    def forward(self, x, size):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "kernel", "told"),
    [
        ("return self.head(F.interpolate(x, size=size))", "1", "F.interpolate(self.head(x), size=size)"),
        (
            "x = F.interpolate(x, size)\n        return self.head(x)",
            "kernel_size=1",
            "F.interpolate(self.head(x), size)",
        ),
        ("x = self.up(x)\n        x = self.head(x)\n        return x + size", "1", "self.up(self.head(x))"),
        # The layer mixes positions, the map is made smaller, or is needed as it is.
        ("return self.head(F.interpolate(x, size=size))", "3", ""),
        ("return self.head(F.interpolate(x, size=size))", "1, stride=2", ""),
        ("return self.head(F.interpolate(x, scale_factor=0.5))", "1", ""),
        ("x = F.interpolate(x, size)\n        y = self.head(x)\n        return x, y", "1", ""),
        ("x = F.interpolate(x, size)\n        return torch.relu(self.head(torch.relu(x)))", "1", ""),
    ],
)
def test_maps_that_are_enlarged_before_a_layer_that_takes_each_position_by_itself(
    body: str, kernel: str, told: str
) -> None:
    assert found(HEAD.format(body=body, kernel=kernel)) == ([("enlarged", "self.head", told, "")] if told else [])


PAIRS = """
class Prototypes(nn.Module):
    def __init__(self):
        self.centres = nn.Parameter(torch.randn(64, 16))
        self.scale = nn.Parameter(torch.randn(16))
        self.table = nn.Embedding(64, 16)

    def forward(self, a, b):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("d = ((a.unsqueeze(1) - b.unsqueeze(0)) ** 2).sum(-1)", "torch.cdist(a, b).pow(2)"),
        ("return (a[None] - f(b)[:, None, :]).pow(2).sum(dim=2).sqrt()", "torch.cdist(f(b), a)"),
        ("d = torch.norm(a[:, :, None] - b[:, None], p=2, dim=-1).min(1)", "torch.cdist(a, b)"),
        ("d = torch.linalg.norm(a.unsqueeze(-2) - b.unsqueeze(-3), dim=-1)", "torch.cdist(a, b)"),
        ("d = (a[:, None] - self.centres).abs().sum(-1)", "torch.cdist(a, self.centres, p=1)"),
        ("d = torch.square(a[:, None] - self.table.weight).sum(-1)", "torch.cdist(a, self.table.weight).pow(2)"),
        ("s = ((a + b)[:, None] * b[None]).sum(-1)", "(a + b) @ b.mT"),
        (
            "s = F.cosine_similarity(a.unsqueeze(1), b.unsqueeze(0), dim=2) / 0.1",
            "F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT",
        ),
        ("d = np.linalg.norm(a[:, None] - b[None], axis=-1)", "scipy.spatial.distance.cdist(a, b)"),
        ("gap = a[:, None] - b[None]; d = (gap * 1).pow(2).sum(-1)", ""),
        ("gap = a[:, None] - b[None]; d = gap.pow(2).sum(-1)", "torch.cdist(a, b).pow(2)"),
        ("with torch.no_grad():;    d = (a[:, None] - b[None]).norm(dim=-1)", "torch.cdist(a, b)"),
        # The numbers of pairs are used for something else, or stay.
        ("gap = a[:, None] - b[None]; d = gap.pow(2).sum(-1); return gap / d", ""),
        ("d = (a[:, None] - b[None]).pow(2).sum(-1, keepdim=True)", ""),
        ("d = (a[:, None] - b[None]).pow(2).mean()", ""),
        # They are along another dimension, or no pairs, or it is not known of what.
        ("d = (a[:, None] - b[None]).pow(2).sum(1)", ""),
        ("d = (a[..., None] - b[..., None, :]).pow(2).sum(-1)", ""),
        ("d = (a[:, None] - self.scale).pow(2).sum(-1)", ""),
        ("d = (a - b[:, None]).pow(2).sum(-1)", ""),
        ("d = (a - b).pow(2).sum(-1)", ""),
        ("s = F.cosine_similarity(a, b, dim=-1)", ""),
    ],
)
def test_pairs_that_are_written_out_to_be_reduced(body: str, told: str) -> None:
    source = PAIRS.format(body=body.replace("; ", "\n        "))
    way = "pairs_forward" if "no_grad" in body else "all_pairs"
    assert [(one, new) for one, _, new, _ in found(source)] == ([(way, told)] if told else [])


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("F.cross_entropy(scores.transpose(1, 2), y)", "F.cross_entropy(scores.flatten(0, 1), y.flatten())"),
        (
            "F.cross_entropy(net(x).permute(0, 2, 1), x[:, 1:], ignore_index=0)",
            "F.cross_entropy(net(x).flatten(0, 1), x[:, 1:].flatten(), ignore_index=0)",
        ),
        ("criterion(scores.transpose(2, 1), y)", "criterion(scores.flatten(0, 1), y.flatten())"),
        # Positions keep their losses, there are as many of them as classes, or it is another loss.
        ("F.cross_entropy(scores.transpose(1, 2), y, reduction='none')", ""),
        ("F.cross_entropy(scores.transpose(0, 1), y)", ""),
        ("F.mse_loss(scores.transpose(1, 2), y)", ""),
        ("F.cross_entropy(scores, y)", ""),
    ],
)
def test_classes_that_are_turned_to_where_they_do_not_lie(call: str, told: str) -> None:
    source = f"criterion = nn.CrossEntropyLoss()\ndef train():\n    loss = {call}\n    loss.backward()\n"
    assert found(source) == ([("turned", call.partition("(")[0], told, "")] if told else [])
