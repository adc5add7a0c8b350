"""Calls in the job's own source: which are found, how they are written, and which loader the loop that trains uses."""

from textwrap import dedent, indent

import pytest

from perfdoctor.capture.own_source.calls import find_calls
from perfdoctor.recording.own_source import SourceCall
from perfdoctor.results.edits import parse

IMPORTS = "import torch\nfrom torch.utils.data import DataLoader\n"


def found(source: str) -> list[SourceCall]:
    source = IMPORTS + dedent(source)
    return find_calls("job.py", parse(source), source.split("\n"))


def used(source: str) -> dict[str, bool | None]:
    """What is known of loaders, by how they are written."""
    return {call.text: call.used for call in found(source) if call.callee == "DataLoader"}


def test_the_statement_is_kept_as_it_is_written() -> None:
    (call,) = found("def main():\n    train = DataLoader(\n        dataset,\n#       num_workers=4,\n    )\n")
    assert call.text == "train = DataLoader(\n        dataset,\n#       num_workers=4,\n    )"
    assert (call.line, call.callee) == (4, "DataLoader")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("for batch in DataLoader(dataset, 8):\n    train(batch)", "DataLoader(dataset, 8)"),
        ("if a: x = 1\nelse: x = DataLoader(d)", "x = DataLoader(d)"),
        ("pw = 'a'; x = DataLoader(d)", "x = DataLoader(d)"),
        ("def make():\n    return wrap(DataLoader(d))", "return wrap(DataLoader(d))"),
    ],
)
def test_a_simple_statement_is_kept_and_of_others_the_call_alone(source: str, text: str) -> None:
    assert [call.text for call in found(source)] == [text]


@pytest.mark.parametrize(
    ("source", "is_kept"),
    [
        ("ids = tok(text, padding='max_length', max_length=256)", True),
        ("ids = self.encode(text, pad_to_max_length=True)", True),
        ("ids = tok(text, padding='longest')", False),
        ("ids = conv(x, padding=1)", False),
    ],
)
def test_calls_that_pad_every_text_are_found_whoever_they_call(source: str, is_kept: bool) -> None:
    """The tokenizer may come out of any function of the job's own."""
    assert [call.text for call in found(source)] == [source] * is_kept


def test_a_call_with_a_secret_in_it_is_left_out() -> None:
    calls = found('x = DataLoader(Bucket(token="hf_abcdefghijklmnopqrst"))\ny = DataLoader(z)')
    assert [call.text for call in calls] == ["y = DataLoader(z)"]


@pytest.mark.parametrize(
    "source",
    [
        "import numba\nnumba.set_num_threads(4)",
        "import bitsandbytes as bnb\nopt = bnb.optim.Adam(p)",
        "class Trainer: pass\nTrainer(model)",
        "from .data import StatefulDataLoader\nStatefulDataLoader(d)",
        "self.Adam()",
        "def init(worker):\n    torch.set_num_threads(1)",  # in each worker, or wherever it is called
    ],
)
def test_the_same_name_elsewhere_is_another_call(source: str) -> None:
    assert not found(source)


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("import torch.optim as optim\noptim.Adam(p)", ["Adam"]),
        ("from torch.utils.data import *\nStatefulDataLoader(d)", ["StatefulDataLoader"]),
        ("torch.set_num_threads(4)", ["set_num_threads"]),
        (
            "def main():\n    torch.set_num_threads(4)\n    for x in y:\n        f(x).backward()",
            ["set_num_threads", "backward"],
        ),
        # Gradients that a backward pass goes through later.
        ("from torch.autograd import grad\ngrad(f(x), x, create_graph=True)", ["grad"]),
        ("import torch\ntorch.autograd.grad(f(x), x, create_graph=self.training)", ["grad"]),
        ("import torch\ntorch.autograd.grad(f(x), x)", []),
        ("import torch\ntorch.autograd.grad(f(x), x, create_graph=False)", []),
        (
            "from torch.distributed.fsdp import MixedPrecision\nf = FSDP(m, mixed_precision=MixedPrecision(a))",
            ["MixedPrecision"],
        ),
        ("model.register_comm_hook(None, bf16_compress_hook)", ["register_comm_hook"]),
        ("with model.no_sync():\n    loss(x).backward()", ["no_sync", "backward"]),
        ("model.set_requires_gradient_sync(last)", ["set_requires_gradient_sync"]),
        ("from jax import grad\ngrad(f, create_graph=True)", []),
        ("import os\ndef pin():\n    os.sched_setaffinity(0, {0})", ["sched_setaffinity"]),
    ],
)
def test_calls_of_the_packages_are_found_under_any_name(source: str, calls: list[str]) -> None:
    assert [call.callee for call in found(source)] == calls


TRAIN, VALID = "train = DataLoader(a)", "valid = DataLoader(b)"


@pytest.mark.parametrize(
    ("loop", "train", "valid"),
    [
        ("for x in train:\n    f(x).backward()\nfor x in valid:\n    f(x)", True, False),
        ("for x in tqdm(enumerate(train)):\n    for part in x:\n        f(part).backward()", True, False),
        ("for epoch in range(3):\n    for x in valid: f(x)\n    for x in train: scale(f(x)).backward()", True, False),
        ("it = iter(train)\nwhile True:\n    f(next(it)).backward()", None, None),
        ("for step in range(9):\n    f(next(it)).backward()\nfor x in valid:\n    f(x)", False, False),
        ("for x in zip(train, valid):\n    f(x).backward()", True, True),
        ("def step(x):\n    f(x).backward()\nfor x in train:\n    step(x)", None, None),
        ("for x in train:\n    def closure():\n        f(x).backward()\n    opt.step(closure)", None, None),
        ("for x in valid:\n    f(x)\nelse:\n    f(x).backward()", None, None),
        ("def fit(train):\n    for x in train:\n        f(x).backward()", False, False),
        ("def fit(model, loader):\n    for x in loader:\n        f(x).backward()\nfit(net, train)", True, False),
        ("def fit(loader):\n    for x in loader:\n        f(x).backward()\nfit(loader=valid)", False, True),
        ("def fit():\n    for x in train:\n        f(x).backward()", True, False),
    ],
)
def test_the_loop_with_the_backward_pass_tells_which_loader_trains(
    loop: str, train: bool | None, valid: bool | None
) -> None:
    assert used(f"{TRAIN}\n{VALID}\n{loop}") == {TRAIN: train, VALID: valid}


def test_names_of_other_functions_and_classes_are_others() -> None:
    stats = "def stats(ds):\n    loader = DataLoader(ds)\n"
    assert used(f"{stats}def fit(loader):\n    for x in loader:\n        f(x).backward()") == {
        "loader = DataLoader(ds)": None
    }
    one, two = (
        f"class {name}:\n    def make(self):\n        self.loader = DataLoader({name})\n" for name in ("One", "Two")
    )
    fit = indent("def fit(self):\n    for x in self.loader:\n        f(x).backward()\n", "    ")
    assert used(one + two + fit) == {"self.loader = DataLoader(One)": None, "self.loader = DataLoader(Two)": True}


def test_a_variable_with_a_type_is_one() -> None:
    loop = "for x in train:\n    f(x).backward()"
    assert used(f"train: DataLoader = DataLoader(a)\n{loop}") == {"train: DataLoader = DataLoader(a)": True}


def test_of_many_calls_that_of_the_loop_is_kept() -> None:
    many = "\n".join(["torch.set_num_threads(1)"] * 100)
    loop = "for x in train:\n    f(x).backward()"
    assert used(f"{many}\n{VALID}\n{TRAIN}\n{loop}") == {TRAIN: True}


HEAD = "optimizer = torch.optim.Adam(model.fc.parameters(), lr=1e-3)"
STEP = """
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("source", "whole"),
    [
        (HEAD + STEP, False),
        (HEAD.replace("model.fc", "model.layers[-1]") + STEP, False),
        (HEAD.replace("Adam(", "Adam(params=") + STEP, False),
        (HEAD + STEP + "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", False),
        (HEAD + STEP + "with torch.no_grad():\n    for x, y in held_out:\n        model(x)\n", False),
        (HEAD.replace("model.fc", "model") + STEP, None),
        (HEAD + "\nother = Lion(model.body.parameters())" + STEP, None),
        (HEAD + "\nfor p in model.body.parameters(): p.requires_grad = False" + STEP, None),
        (HEAD + "\nmodel.body.requires_grad_(False)" + STEP, None),
        (HEAD + STEP.replace("model(x)", "model.fc(features(x))"), None),
        (HEAD + STEP.replace("    loss =", "    with torch.no_grad(): seen = body(x)\n    loss ="), None),
        ("class Net:\n  def forward(self, x):\n    return self.fc(self.body(x).detach())\n" + HEAD + STEP, None),
        ("optimizer = Adam(filter(lambda p: p.requires_grad, model.fc.parameters()))" + STEP, None),
        # Lightning's module calls itself, and what it is made of by name.
        (
            "class Lit:\n  def configure_optimizers(self):\n    return torch.optim.SGD(self.net.parameters())\n"
            "  def training_step(self, batch):\n    return self(batch)\n",
            None,
        ),
    ],
)
def test_an_optimizer_of_a_part_is_told_where_nothing_keeps_gradients_from_the_rest(
    source: str, whole: bool | None
) -> None:
    calls = [call for call in found(source) if call.callee in ("Adam", "SGD")]
    assert [call.used for call in calls] == [whole] * len(calls)
    assert calls or "Adam(filter" in source


GAN = """
opt_d = torch.optim.Adam(D.parameters())
opt_g = torch.optim.Adam(G.parameters())
for real in loader:
    fake = G(noise())
    loss = D(real).mean() - D(fake).mean()
    opt_d.zero_grad()
    loss.backward()
    opt_d.step()
    opt_g.zero_grad()
    loss = D(G(noise())).mean()
    loss.backward()
    opt_g.step()
"""
IN_METHODS = """
class Gan:
    def __init__(self):
        self.opt_d = torch.optim.RMSprop(self.D.parameters())
        self.opt_g = torch.optim.RMSprop(self.G.parameters())
    def critic_step(self, real):
        loss = self.D(self.G(self.noise())).mean() - self.D(real).mean()
        self.opt_d.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt_d)
    def generator_step(self):
        self.G.zero_grad()
        self.D(self.G(self.noise())).mean().backward()
        self.opt_g.step()
"""
AUTOENCODER = """
opt_e = torch.optim.Adam(E.parameters())
opt_d = torch.optim.Adam(D.parameters())
for x in loader:
    opt_e.zero_grad(); opt_d.zero_grad()
    loss = D(E(x)).mean()
    loss.backward()
    opt_d.step()
    opt_e.step()
"""


@pytest.mark.parametrize(
    ("source", "unused"),
    [
        (GAN, ["fake = G(noise())"]),
        (IN_METHODS, ["loss = self.D(self.G(self.noise())).mean() - self.D(real).mean()"]),
        (GAN.replace("D(fake)", "D(fake.detach())"), []),
        (GAN.replace("    fake = G(noise())", "    with torch.no_grad():\n        fake = G(noise())"), []),
        (GAN.replace("    opt_g.zero_grad()\n", ""), []),  # then the generator learns from both
        (GAN.replace("D(fake)", "D(other)"), []),
        (GAN.replace("opt_g = torch.optim.Adam(G.parameters())", "opt_g = make(G)"), []),
        (AUTOENCODER, []),
        (AUTOENCODER.replace("    opt_d.step()\n    opt_e.step()", "    opt_e.step()\n    opt_d.step()"), []),
    ],
)
def test_a_pass_whose_gradients_are_cleared_before_they_are_used_is_found(source: str, unused: list[str]) -> None:
    calls = [call for call in found(source) if call.callee not in ("Adam", "RMSprop")]
    assert [call.text for call in calls if call.used is not None] == unused
    assert all(call.used is False for call in calls if call.text in unused)


TEACHER = """
teacher = Net().eval()
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for x, y in loader:
    target = teacher(x)
    loss = distance(student(x), target, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TOLD = ["teacher = Net().eval()", "target = teacher(x)"]
IN_A_STEP = """
class Distiller:
    def __init__(self):
        self.teacher = copy.deepcopy(self.student)
        self.teacher.eval()
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.1)
    def step(self, x):
        self.distance(self.student(x), self.teacher(x)).backward()
        self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (TEACHER, TOLD),
        # What the student computes in the same statement is no part of it.
        (IN_A_STEP, ["self.teacher.eval()"]),
        (TEACHER + "count = sum(one.numel() for one in teacher.parameters())\n", TOLD),
        (TEACHER + "for one in teacher.parameters():\n    one.requires_grad = False\n", []),
        (TEACHER.replace(".eval()", ""), []),
        (TEACHER + "teacher.train()\n", []),
        (TEACHER.replace("(student.parameters()", "([*student.parameters(), *teacher.parameters()]"), []),
        (TEACHER.replace("(student.p", "(teacher.student.p"), []),
        (TEACHER.replace("student.parameters()", "model.parameters()") + "model = Both(student, teacher)\n", []),
        (TEACHER.replace("teacher(x)", "teacher(x).detach()"), []),
        (TEACHER.replace("target, y", "target.logits.argmax(1), y"), []),
        (TEACHER.replace("target = teacher(x)", "with torch.no_grad():\n        target = teacher(x)"), []),
        (TEACHER.replace("target = teacher(x)", "target = 0") + "for x in held_out:\n    teacher(x)\n", []),
    ],
)
def test_what_only_evaluates_and_gets_gradients_all_the_same_is_found(source: str, told: list[str]) -> None:
    assert [call.text for call in found(source) if call.used is False and call.callee != "SGD"] == told
