"""What a job's own source makes of what never changes while it trains."""

from textwrap import dedent

import pytest

from perfdoctor.capture.own_source.unchanged import find_unchanged
from perfdoctor.recording.own_source import SourceGiven, SourceUnchanged
from perfdoctor.results.edits import parse

IMPORTS = "import math, random, numpy as np, torch, torch.nn as nn, torch.nn.functional as F\nimport scipy.signal\n"


def rows(*sources: str) -> list[SourceUnchanged | SourceGiven]:
    texts = {f"{number}.py": IMPORTS + dedent(source) for number, source in enumerate(sources)}
    files = {file: parse(text) for file, text in texts.items()}
    return list(find_unchanged(files, {file: text.split("\n") for file, text in texts.items()}))


def made(*sources: str) -> list[tuple[str, str, str]]:
    """What is made, of which parameters, and what its key is."""
    return [(one.text, one.needs, one.key) for one in rows(*sources) if isinstance(one, SourceUnchanged)]


def given(*sources: str) -> list[tuple[str, str]]:
    return [(one.callee, one.given) for one in rows(*sources) if isinstance(one, SourceGiven)]


def in_function(body: str, parameters: str = "x, edges, n") -> str:
    return f"def forward({parameters}):\n" + "".join(f"    {line}\n" for line in dedent(body).split("\n"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("adj = torch.cdist(edges, edges)", ("torch.cdist(edges, edges)", "1:edges", "id(edges)")),
        ("return F.relu(edges.float() @ edges.T)", ("F.relu(edges.float() @ edges.T)", "1:edges", "id(edges)")),
        # A size may be another one: the key says so, but it need not be the same object.
        (
            "deg = torch.zeros(x.size(0)).index_add_(0, edges[1], torch.ones(x.shape[0]))",
            (
                "torch.zeros(x.size(0)).index_add_(0, edges[1], torch.ones(x.shape[0]))",
                "1:edges",
                "id(edges), x.shape[0], x.size(0)",
            ),
        ),
        ("taps = scipy.signal.firwin(n, [e / 2 for e in (1, 2)])", None),  # of a number alone: next to nothing of data
        # Drawn, read, counted, asked of something, or written into: another one each time.
        ("noise = torch.rand(n) * edges", None),
        ("kept = F.dropout(edges.float(), 0.1)", None),
        ("table = torch.load(edges)", None),
        ("batch = torch.stack([x.sample() for _ in range(n)])", None),
        ("batch = edges.sample(n)", None),
        ("state = edges.step(n)", None),
        ("out = torch.add(edges, n, out=x)", None),
        ("edges.mul_(2)\nadj = torch.cdist(edges, edges)", None),
        ("edges = next(x)\nadj = torch.cdist(edges, edges)", None),
        ("adj = torch.cdist(edges, edges)\nadj[0] = 0", None),
        # What is one sample after another shows only that its samples are tensors.
        ("rows = torch.stack([row for row in edges])", None),
        ("part = torch.cdist(edges[n], edges[n])", None),
        ("part = edges.float() + torch.stack([row for row in edges])",
         ("edges.float() + torch.stack([row for row in edges])", "1:edges", "id(edges)")),
        # No more than another view of it.
        ("flat = edges.view(-1)", None),
        ("flat = edges.t()[0]", None),
    ],
)  # fmt: skip
def test_what_is_the_same_when_parameters_are(body: str, expected: tuple[str, str, str] | None) -> None:
    found = [one for one in made(in_function(body)) if "firwin" not in one[0]]
    assert found == ([expected] if expected else [])


HELPER = """
    def normalise(edges, n):
        full = torch.cat([edges, torch.arange(n).expand(2, n)], 1)
        deg = torch.zeros(n)
        deg.index_add_(0, full[1], torch.ones(full.size(1)))
        inv = deg.pow(-0.5)
        inv[torch.isinf(inv)] = 0.0
        {extra}
        return inv[full[0]] * inv[full[1]]

    class Conv(nn.Module):
        def forward(self, x, edges):
            return torch.mv(x, normalise(edges, x.size(0)))
"""


def test_a_function_that_changes_nothing_makes_the_same_of_the_same() -> None:
    found = [one for one in rows(HELPER.format(extra="")) if isinstance(one, SourceUnchanged) and one.callee]
    assert [(one.text, one.needs, one.callee, one.function) for one in found] == [
        ("normalise(edges, x.size(0))", "1:edges", "normalise", "forward")
    ]


def test_a_function_may_do_without_gradients() -> None:
    source = HELPER.format(extra="with torch.no_grad():\n            inv = inv.clamp(max=9)")
    assert any("normalise(" in one[0] for one in made(source))
    assert not any("normalise(" in one[0] for one in made(source.replace("torch.no_grad", "lock")))


def test_a_function_of_another_file_is_known_as_well() -> None:
    helper, layer = HELPER.format(extra="").split("class Conv")
    layer = "from graphs import normalise\n" + dedent(f"    class Conv{layer}")
    assert ("normalise(edges, x.size(0))", "1:edges", "id(edges), x.size(0)") in made(helper, layer)
    assert not [one for one in made(layer) if "normalise" in one[0]]  # not read: nobody knows what it does


@pytest.mark.parametrize(
    "extra",
    [
        "print(inv)",
        "edges += 1",
        "edges[0] = 0",
        "inv = F.dropout(inv, 0.5)",
        "seen.append(n)",
        "global count; count = n",
        "inv = inv * random.random()",
        "inv = inv * scale()",
        "view = edges.view(-1); view.mul_(2)",
        "with open(n) as file: inv = inv * len(file.read())",
        "self.count = n",
    ],
)
def test_a_function_that_does_anything_else_is_left_alone(extra: str) -> None:
    lines = extra.replace("; ", "\n        ")
    assert not [one for one in made(HELPER.replace("{extra}", lines)) if "normalise(" in one[0]]


LAYER = """
    class Layer(nn.Module):
        def __init__(self, graph, size):
            super().__init__()
            self.size, self.lin = size, nn.Linear(size, size)
            self.register_buffer("basis", torch.linspace(0, 1, size))
            self.graph = graph
            self.table = nn.Parameter(torch.zeros(size))
            self.seen = torch.zeros(size)
            self.count = 0

        def forward(self, x):
            self.count += 1
            self.seen[0] = self.count
            return {made}
"""


@pytest.mark.parametrize(
    ("expression", "key"),
    [
        ("torch.outer(self.basis, self.basis).cos()", "id(self.basis)"),
        ("torch.linalg.inv(self.graph @ self.graph.T)", "id(self.graph)"),
        ("torch.outer(self.table, self.basis)", ""),  # trained
        ("torch.outer(self.seen, self.basis)", ""),  # written into
        ("torch.full((3,), 1.0) * self.count", ""),  # counted
        ("self.lin(self.basis)", ""),  # what a layer makes changes with its weights
    ],
)
def test_attributes_that_are_given_once_never_change(expression: str, key: str) -> None:
    found = made(LAYER.replace("{made}", expression))
    assert [one[2] for one in found if expression == one[0]] == ([key] if key else [])


@pytest.mark.parametrize(
    "later",
    ["model.graph = other", "del model.graph", "model.graph += 1", "model.layers[0].graph, x = other"],
)
def test_an_attribute_that_somebody_gives_another_value_changes(later: str) -> None:
    source = dedent(LAYER.replace("{made}", "torch.linalg.inv(self.graph @ self.graph.T)"))
    assert not made(f"{source}\ndef update(model, other):\n    {later}\n")
    assert made(f"{source}\ndef update(model, other):\n    {later.replace('graph', 'other')}\n")


def test_what_is_made_where_nothing_is_kept_yet_is_known() -> None:
    cached = "self.kept if self.kept is not None else torch.linalg.pinv(self.basis)"
    assert ("torch.linalg.pinv(self.basis)", "", "id(self.basis)") in made(LAYER.replace("{made}", cached))
    assert not made(LAYER.replace("{made}", "self.lin(x) if self.training else torch.linalg.pinv(self.basis)"))


BOXES = """
    class Boxes:
        def __init__(self, config):
            self.config, self.last = config, 0

        def __call__(self):
            boxes = []
            for row, size in enumerate(self.config["sizes"]):
                boxes += [row / size, 1.0]
                {extra}
            return torch.tensor(boxes).view(-1, 2)

    class Loss(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.boxes = Boxes(config)

        def forward(self, out):
            return (out - self.boxes()).abs().sum()

    def train(model, loader):
        boxes = Boxes(CONFIG)
        for batch in loader:
            near = boxes()
            model(batch, near).backward()
"""


def test_an_object_of_the_job_s_own_gives_the_same_if_its_method_does() -> None:
    found = [one for one in rows(BOXES.replace("{extra}", "")) if isinstance(one, SourceUnchanged)]
    assert {
        (one.text, one.needs, one.callee, one.key, one.function) for one in found if one.text.endswith("oxes()")
    } == {
        ("self.boxes()", "", "__call__", "id(self.boxes)", "forward"),
        ("boxes()", "", "", "id(boxes)", "train"),
    }


@pytest.mark.parametrize("extra", ["self.last += 1", "boxes += [random.random()]", "size = next(self.config)"])
def test_an_object_that_goes_on_gives_something_else(extra: str) -> None:
    assert not [one for one in made(BOXES.replace("{extra}", extra)) if "oxes()" in one[0]]


def test_an_attribute_that_is_given_a_model_s_numbers_changes() -> None:
    source = LAYER.replace("{made}", "torch.linalg.inv(self.graph @ self.graph.T)")
    assert made(source + "\n    layer = Layer(data, 3)\n")
    assert not made(source + "\n    layer = Layer(embedding.weight, 3)\n")


LOOP = """
    def main(loader, args):
        x, edges = make_graph(args)
        state = torch.zeros(3)
        {before}
        for epoch in range(9):
            for batch in loader:
                out = model({given})
                {again}
                out.sum().backward()
                optimizer.step()
"""


def test_a_loop_that_trains_says_what_it_never_changes() -> None:
    assert ("model", "0= 1") in given(LOOP.format(before="", given="edges, batch", again="pass"))
    assert ("model", "0= 1 scale=") in given(LOOP.format(before="", given="x, batch, scale=2", again="pass"))
    # What it gets from a loader, or changes itself, is given as what changes.
    assert not [one for one in given(LOOP.format(before="", given="batch, epoch", again="pass")) if one[0] == "model"]
    assert not [one for one in given(LOOP.format(before="", given="x", again="x = out")) if one[0] == "model"]
    assert not [one for one in given(LOOP.format(before="", given="x", again="x.add_(1)")) if one[0] == "model"]
    assert not [one for one in given(LOOP.format(before="", given="x", again="x[0] = 1")) if one[0] == "model"]


def test_a_loop_that_trains_makes_the_same_itself() -> None:
    again = "adj = torch.cdist(edges.float(), edges.float())"
    source = LOOP.format(before="", given="batch", again=again)
    assert ("torch.cdist(edges.float(), edges.float())", "", "id(edges)") in made(source)
    # In the lines before, it is made once.
    assert not made(LOOP.format(before=again, given="batch", again="pass"))
    # A loop that never trains makes what it likes.
    assert not [one for one in made(source.replace("out.sum().backward()", "pass")) if not one[1]]


@pytest.mark.parametrize(
    "before",
    [
        "edges = torch.zeros(3, requires_grad=True)",
        "edges = model.embedding.weight",
        "optimizer = torch.optim.SGD([edges], lr=0.1)",
        "edges = start()",
    ],
)
def test_what_training_changes_is_not_the_same(before: str) -> None:
    start = "def start():\n    return torch.zeros(3).requires_grad_()\n"
    source = LOOP.format(before=before, given="batch", again="adj = torch.outer(edges, edges)")
    assert not made(start + dedent(source))


def test_what_a_loop_carries_on_is_another_in_each_round() -> None:
    assert not made(LOOP.format(before="", given="batch", again="state = state * 0.9 + torch.outer(x, x).sum()"))
    assert not made(LOOP.format(before="", given="batch", again="state = torch.cat([state, x])"))


@pytest.mark.parametrize(
    "again",
    ["push(x, batch)", "push(rows=batch, into=x)", "np.copyto(x, batch)", "random.shuffle(x)", "nn.init.normal_(x)"],
)
def test_what_a_loop_hands_to_somebody_who_writes_into_it_changes(again: str) -> None:
    push = "def fill(into, rows):\n    into[:] = rows\ndef push(into, rows):\n    fill(into.view(-1), rows)\n"
    source = LOOP.format(before="", given="batch", again=f"{again}\n                y = torch.outer(x, x)")
    assert made(push + dedent(source.replace(again, "print(x)")))
    assert not [one for one in made(push + dedent(source)) if "outer" in one[0]]


def test_a_parameter_that_gets_another_value_is_made_of_what_it_was() -> None:
    source = "edges = edges.float()\nedges = F.relu(edges @ edges.T)\nreturn edges.abs()"
    assert {needs for _, needs, _ in made(in_function(source))} == {"1:edges"}
    text = "import re\nURL = re.compile('http')\ndef clean(text):\n    text = URL.sub('', text)\n    return text\n"
    assert {needs for _, needs, _ in made(text)} == {"0:text"}


def test_what_a_function_in_it_writes_into_changes() -> None:
    again = "y = torch.outer(x, x)"
    for change in ("nonlocal x; x = x + 1", "x.add_(1)", "x[0] = 1"):
        hook = f"def hook(): {change}"
        assert not [one for one in made(LOOP.format(before=hook, given="batch", again=again)) if "outer" in one[0]]
    assert made(LOOP.format(before="def hook(): print(x)", given="batch", again=again))


def test_a_round_s_own_number_is_part_of_nothing_that_is_kept() -> None:
    assert not made(LOOP.format(before="", given="batch", again="for i in range(3): part = torch.roll(edges, i) @ x"))


def test_a_statement_with_a_secret_is_left_out() -> None:
    body = "adj = torch.cdist(edges, edges, {})"
    assert made(in_function(body.format("2")))
    assert not made(in_function(body.format("token='ghp_0123456789abcdefghijABCDEFGHIJ012345'")))


def test_what_is_deeply_nested_is_an_error_of_its_own() -> None:
    deep = "adj = " + "edges + " * 100_000 + "edges"
    with pytest.raises(RecursionError):
        rows(in_function(deep))


FORWARD = """
import math, torch
WIDTH = 8
scale = load()

def table(length, width):
    made = torch.zeros(length, width)
    for at in range(length):
        made[at] = math.sin(at)
    return made

def noise(length):
    return torch.rand(length)

def scaled(length):
    return scale * length

class Net(Module):
    def forward(self, x):
        batch, length = x.shape[:2]
        {}
        return x
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x = x + table(length, WIDTH)", ("table(length, WIDTH)", "length", "", "table")),
        ("mask = torch.triu(torch.ones(x.shape[1], x.shape[1]), 1).bool()",
         ("torch.triu(torch.ones(x.shape[1], x.shape[1]), 1).bool()", "x.shape[1]", "mask", "")),
        ("at = torch.arange(x.size(1), device=x.device)",
         ("torch.arange(x.size(1), device=x.device)", "x.device, x.size(1)", "at", "")),
        ("x = self.pos(torch.arange(length) + 1) + x", ("torch.arange(length) + 1", "length", "", "")),
        ("base = length\n        x = base * torch.linspace(0, 1, base) + x",
         ("base * torch.linspace(0, 1, base)", "base", "", "")),
        # It is made of data, drawn, made of what may change, or written into.
        ("mask = torch.triu(x)", None),
        ("x = x + noise(length)", None),
        ("x = x + scaled(length)", None),
        ("out = torch.zeros(length)\n        out[0] = x.sum()", None),
        ("out = torch.zeros(length)\n        out += x", None),
        ("x = self.table(length)", None),
        ("x = x * length // 2", None),
        ("mask = wrapped(torch.eye(length))\n        mask[0] = x.sum()", None),
        ("x = rnn(x, torch.zeros(length).double())", None),
        ("x = x + torch.eye(length).float().uniform_(0, 1)", None),
    ],
)  # fmt: skip
def test_what_is_made_of_sizes_alone_is_made_again(body: str, expected: tuple[str, ...] | None) -> None:
    assert [
        (one.text, one.key, one.put, one.callee)
        for one in rows(FORWARD.replace("{}", body))
        if isinstance(one, SourceUnchanged) and one.function == "forward" and "id(" not in one.key
    ] == ([expected] if expected else [])


def test_what_is_made_before_a_loop_that_trains_is_made_once() -> None:
    source = dedent(
        """
        import torch
        def train(loader):
            once = torch.arange(9)
            for x in loader:
                again = torch.arange(7)
                model(x + again).backward()
        """
    )
    assert [(one[0], one[2]) for one in made(source)] == [("torch.arange(7)", "")]


@pytest.mark.parametrize(("use", "is_kept"), [("made.sum()", True), ("made[0] = 5", False), ("made += 1", False)])
def test_what_is_written_into_where_a_function_is_called_is_not_kept_in_it(use: str, *, is_kept: bool) -> None:
    source = f"def ramp():\n    return torch.linspace(0, 1, 9).cos()\ndef use():\n    made = ramp()\n    {use}\n"
    assert any(one.function == "ramp" for one in rows(source) if isinstance(one, SourceUnchanged)) is is_kept


def test_a_key_has_sizes_in_it_and_no_tensors() -> None:
    body = "base = torch.arange(len(x))\nmore = base[0] + base * torch.eye(x.shape[0])"
    assert [(one[0], one[2]) for one in made(in_function(body)) if "id(" not in one[2]] == [
        ("torch.arange(len(x))", "len(x)"),
        ("base[0] + base * torch.eye(x.shape[0])", "len(x), x.shape[0]"),
    ]
