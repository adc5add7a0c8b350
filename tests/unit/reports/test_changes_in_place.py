"""Advice in the job's own code: its call with the new arguments, its own command, and when neither is touched."""

from dataclasses import replace

import pytest

from perfdoctor.diagnosis import OwnCall, OwnCode, advise
from perfdoctor.knowledge.libraries import LOADER_OF_EVALUATION, LOADER_OF_TRAINER, SAME_ARGUMENTS
from perfdoctor.knowledge.versions import missing_parts
from perfdoctor.reports.changes_in_place import in_own_code
from perfdoctor.reports.wording import worded_fix

LOADERS, OPTIMIZERS = SAME_ARGUMENTS[:2]
THREADS = next(names for names in SAME_ARGUMENTS if "set_num_threads" in names)


def of_loader(text: str) -> OwnCode:
    return OwnCode((OwnCall("/home/me/data.py", 7, text, LOADERS),))


@pytest.mark.parametrize(
    ("own", "advised", "shown"),
    [
        ("x = DataLoader(ds, 8)", "DataLoader(..., num_workers=2)", "x = DataLoader(ds, 8, num_workers=2)"),
        ("x = DataLoader(d, num_workers=n)", "y = DataLoader(..., num_workers=2)", "x = DataLoader(d, num_workers=2)"),
        (
            "DataLoader(d, batch_size=8)",
            "DataLoader(..., batch_size=2 * batch_size)",
            "DataLoader(d, batch_size=2 * 8)",
        ),
        (
            "DataLoader(ds, batch_size=a or 1)",
            "DataLoader(..., batch_size=2 * batch_size)",
            "DataLoader(ds, batch_size=2 * (a or 1))",
        ),
        (
            "x = StatefulDataLoader(\n    ds,\n    **kw,\n)",
            "DataLoader(..., pin_memory=True)",
            'x = StatefulDataLoader(\n    ds,\n    **{**kw, "pin_memory": True},\n)',
        ),
        (
            "DataLoader(ds, num_workers=2, persistent_workers=True, prefetch_factor=4, shuffle=True)",
            "DataLoader(..., num_workers=0)",
            "DataLoader(ds, num_workers=0, shuffle=True)",
        ),
        ("DataLoader((d))", "DataLoader(..., num_workers=2)", "DataLoader(d, num_workers=2)"),
        (
            "DataLoader(d, shuffle=(True))",
            "DataLoader(..., num_workers=2)",
            "DataLoader(d, shuffle=True, num_workers=2)",
        ),
        ("DataLoader()", "DataLoader(..., num_workers=2)", "DataLoader(num_workers=2)"),
        ("DataLoader(i for i in r)", "DataLoader(..., num_workers=2)", "DataLoader((i for i in r), num_workers=2)"),
        ("DataLoader(**a or b)", "DataLoader(..., num_workers=2)", "DataLoader(**{**(a or b), 'num_workers': 2})"),
        ("DataLoader('a\u2028b', d)", "DataLoader(..., num_workers=2)", "DataLoader('a\u2028b', d, num_workers=2)"),
        (
            "DataLoader(d,\f batch_size=(8))",
            "DataLoader(..., num_workers=2)",
            "DataLoader(d, batch_size=8, num_workers=2)",
        ),
        (
            "DataLoader(prefetch_factor=4, dataset=d)",
            "DataLoader(..., num_workers=0)",
            "DataLoader(dataset=d, num_workers=0)",
        ),
        ("DataLoader(ds, prefetch_factor=4)", "DataLoader(..., num_workers=0)", "DataLoader(ds, num_workers=0)"),
    ],
)
def test_the_jobs_own_call_with_the_new_arguments(own: str, advised: str, shown: str) -> None:
    assert in_own_code(advised, of_loader(own)) == f"# data.py:7\n{shown}"


@pytest.mark.parametrize(
    ("own", "advised"),
    [
        ("DataLoader(ds)", "DataLoader(..., batch_size=2 * batch_size)"),  # it is not known which size that has
        ("DataLoader(ds)", "DataLoader(..., sampler=DistributedSampler(dataset))"),  # nor how the dataset is called
        ("a, b = DataLoader(x), DataLoader(y)", "DataLoader(..., num_workers=2)"),
        ("DataLoader(ds, 8, True, None, None, 0)", "DataLoader(..., num_workers=2)"),
        ("DataLoader(ds)", "optimizer = torch.optim.AdamW(..., fused=True)"),
        ("DataLoader(ds)", "DataLoader(ds, num_workers=2"),
        ("DataLoader(ds, **kw)", "DataLoader(..., num_workers=0)"),  # which may hold what is refused then
        ("DataLoader(ds, batch_size=None)", "DataLoader(..., batch_size=2 * batch_size)"),
        ("DataLoader(ds)", "# DataLoader(..., num_workers=2)"),
    ],
)
def test_what_does_not_fit_stays_as_it_is(own: str, advised: str) -> None:
    assert in_own_code(advised, of_loader(own)) == advised


@pytest.mark.parametrize(
    ("advised", "shown"),
    [
        (
            "DataLoader(..., num_workers=2, persistent_workers=True)  # two",
            "TrainingArguments(..., dataloader_num_workers=2, dataloader_persistent_workers=True)  # two",
        ),
        (
            "loader = DataLoader(..., batch_size=2 * batch_size)",
            "TrainingArguments(..., per_device_eval_batch_size=2 * per_device_eval_batch_size)",
        ),
        ("DataLoader(..., sampler=longer)", "DataLoader(..., sampler=longer)"),
        ("DataLoader(data, num_workers=2)", "DataLoader(data, num_workers=2)"),
        ("torch.set_num_threads(2)", "torch.set_num_threads(2)"),
    ],
)
def test_a_trainer_that_makes_its_loaders_takes_their_arguments(advised: str, shown: str) -> None:
    assert in_own_code(advised, OwnCode(loader_arguments=LOADER_OF_EVALUATION)) == shown


def test_the_arguments_of_a_trainer_are_put_into_its_own_call() -> None:
    names = next(names for names in SAME_ARGUMENTS if "TrainingArguments" in names)
    call = OwnCall("train.py", 3, "args = TrainingArguments(out, per_device_train_batch_size=8)", names)
    own = OwnCode((call,), loader_arguments=LOADER_OF_TRAINER)
    shown = in_own_code("DataLoader(..., batch_size=2 * batch_size)", own)
    assert shown == "# train.py:3\nargs = TrainingArguments(out, per_device_train_batch_size=2 * 8)"


def test_comments_and_other_lines_stay() -> None:
    advised = "DataLoader(..., num_workers=2)  # as many as there are cores\ntorch.set_num_threads(1)"
    assert in_own_code(advised, of_loader("DataLoader(ds)")) == (
        "# data.py:7\n# as many as there are cores\nDataLoader(ds, num_workers=2)\ntorch.set_num_threads(1)"
    )


def test_the_only_argument_of_a_call_is_replaced() -> None:
    own = OwnCode((OwnCall("train.py", 3, "torch.set_num_threads(16)", THREADS),))
    assert in_own_code("torch.set_num_threads(2)", own) == "# train.py:3\ntorch.set_num_threads(2)"


def test_a_call_that_has_these_arguments_is_not_the_one_to_change() -> None:
    own = OwnCode((OwnCall("/home/me/train.py", 71, "torch.set_num_threads(1)", THREADS),))
    assert (
        in_own_code("torch.set_num_threads(1)  # in workers too", own) == "torch.set_num_threads(1)  # in workers too"
    )
    assert in_own_code("torch.set_num_threads(2)", own).startswith("# train.py:71")


def test_fused_takes_the_place_of_foreach_in_the_optimizer_that_the_job_has() -> None:
    own = OwnCode((OwnCall("train.py", 3, "opt = SGD(ps, lr=0.1, foreach=True)", OPTIMIZERS),))
    fix = worded_fix(replace(advise("optimizer.fused", share=0.2, gpu=False, trainer=False, update="SGD"), own=own))
    assert "opt = SGD(ps, lr=0.1, fused=True)" in fix.change.splitlines()


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/venv/bin/python ddp.py --lr 1", "OMP_NUM_THREADS=2 /venv/bin/python ddp.py --lr 1   # or in code"),
        ("", "OMP_NUM_THREADS=2 python train.py   # or in code"),
    ],
)
def test_the_jobs_own_command(command: str, shown: str) -> None:
    assert in_own_code("OMP_NUM_THREADS=2 python train.py   # or in code", OwnCode(command=command)) == shown


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("DataLoader(data, cfg.batch, shuffle=True)", "DataLoader(data, 2 * cfg.batch, shuffle=True)"),
        ("DataLoader(data, 8, True, None, None)", "DataLoader(data, 2 * 8, True, None, None)"),
        ("DataLoader(data, batch_size=8)", "DataLoader(data, batch_size=2 * 8)"),
    ],
)
def test_what_is_given_by_position_is_changed_there(call: str, shown: str) -> None:
    own = OwnCode((OwnCall("train.py", 3, call, LOADERS),))
    assert in_own_code("DataLoader(..., batch_size=2 * batch_size)", own).endswith(shown)


def test_of_arguments_by_position_that_are_not_known_nothing_is_changed() -> None:
    own = OwnCode((OwnCall("train.py", 3, "DataLoader(*given)", LOADERS),))
    advised = "DataLoader(..., batch_size=2 * batch_size)"
    assert in_own_code(advised, own) == advised


def test_an_optimizer_that_is_differentiated_cannot_be_fused() -> None:
    own = OwnCode((OwnCall("train.py", 3, "opt = Adam(ps, differentiable=True)", OPTIMIZERS),))
    advised = "optimizer = torch.optim.AdamW(..., fused=True)"
    assert in_own_code(advised, own) == advised


@pytest.mark.parametrize(
    "command", ["python my-train.py", "python run.py --script train.py", "python /opt/launch.py --nproc 2 train.py"]
)
def test_a_command_is_put_in_once(command: str) -> None:
    assert in_own_code("A=1 python train.py", OwnCode(command=command)) == f"A=1 {command}"


def test_of_two_scripts_it_is_not_known_which_one_trains() -> None:
    advised = "torchrun --nproc-per-node=1 train.py"
    assert in_own_code(advised, OwnCode(command="python /opt/launch.py --nproc 2 train.py")) == advised


def test_another_launcher_starts_the_jobs_own_script() -> None:
    own = OwnCode(command="python /venv/bin/torchrun --nproc-per-node 2 src/ddp.py --lr 1")
    assert in_own_code("torchrun --nproc-per-node=1 train.py", own) == "torchrun --nproc-per-node=1 src/ddp.py"


@pytest.mark.parametrize(("torch", "told"), [("2.5.1", True), ("2.6.0", False), ("", False)])
def test_what_the_jobs_pytorch_does_not_have_yet_is_said(torch: str, told: bool) -> None:
    own = OwnCode(torch=torch, missing=missing_parts(torch))
    shown = worded_fix(replace(advise("input.out_of_order", slack=0.2), own=own)).change
    assert ("# in_order needs PyTorch 2.6 or newer; this job runs 2.5.1" in shown) is told
