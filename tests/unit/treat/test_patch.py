"""Patches for the user's own script: they change the call that was meant and nothing else, and leave it Python."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from perfdoctor.results.edits import Edit, more_rarely
from perfdoctor.treat.patch import AFTER_IMPORTS, edited, edits_of, make_patch
from perfdoctor.treat.run import RunChange
from tests.builders.trials import a_treatment

LOADER = {"num_workers": "2", "persistent_workers": "True"}
WITH_WORKERS = {"kind": "loader", "name": "DataLoader", "values": {"num_workers": 2}}


def loader(source: str, line: int = 1, call: str = "DataLoader") -> str:
    return edited(source, [Edit("train.py", line, call, LOADER)])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = DataLoader(ds)", "x = DataLoader(ds, num_workers=2, persistent_workers=True)"),
        (
            "x = torch.utils.data.DataLoader(ds, batch_size=8, num_workers=cfg['w'])",
            "x = torch.utils.data.DataLoader(ds, batch_size=8, num_workers=2, persistent_workers=True)",
        ),
        (
            "x = DataLoader(ds, batch_size=8,)",
            "x = DataLoader(ds, batch_size=8, num_workers=2, persistent_workers=True,)",
        ),
        ("x = DataLoader(dataset=ds)", "x = DataLoader(dataset=ds, num_workers=2, persistent_workers=True)"),
        (
            "x = DataLoader(ds, **options)",
            'x = DataLoader(ds, **{**options, "num_workers": 2, "persistent_workers": True})',
        ),
        ("x = DataLoader(f('ä', g(1)))", "x = DataLoader(f('ä', g(1)), num_workers=2, persistent_workers=True)"),
    ],
)
def test_arguments_are_put_into_the_call(before: str, after: str) -> None:
    assert loader(before) == after


def test_a_call_over_several_lines_keeps_its_looks() -> None:
    before = "x = DataLoader(\n    ds,  # all of it\n    shuffle=True,\n)\n"
    assert loader(before, 2) == before.replace("shuffle=True", "shuffle=True, num_workers=2, persistent_workers=True")


def test_a_class_of_the_job_s_own_is_changed_where_it_calls_its_base() -> None:
    before = "class Mine(DataLoader):\n    def __init__(self, ds):\n        super().__init__(ds)\n"
    assert "super().__init__(ds, num_workers=2" in loader(before, 3, "Mine")


@pytest.mark.parametrize(
    "source",
    [
        "x = make_loader(ds)",  # the call is not where it was seen
        "x = DataLoader(a), DataLoader(b)",  # two of them
        "x = DataLoader(a, 8, True, None, None, 4)",  # one of these is the number of workers
    ],
)
def test_where_the_place_is_not_sure_nothing_is_changed(source: str) -> None:
    assert loader(source) == source


def test_the_only_argument_is_replaced_by_position() -> None:
    edit = Edit("train.py", 1, "set_num_threads", {"": "2"})
    assert edited("torch.set_num_threads(args.threads)\n", [edit]) == "torch.set_num_threads(2)\n"


def test_a_new_call_comes_after_the_imports() -> None:
    source = '"""Trains."""\n\nimport torch\nfrom torch import nn\n\nmodel = nn.Linear(1, 1)\n'
    changed = edited(source, [Edit("train.py", AFTER_IMPORTS, "torch.set_num_threads", {"": "1"})])
    assert changed == source.replace("import nn\n", "import nn\n\ntorch.set_num_threads(1)\n")
    assert (
        edited("from torch import nn\n", [Edit("a", AFTER_IMPORTS, "torch.set_num_threads", {"": "1"})]).count("\n")
        == 1
    )


def test_every_place_that_was_seen_is_changed() -> None:
    treatment = a_treatment("x", keywords={"loader": LOADER, "threads": {"": "1"}})
    facts = [
        {**WITH_WORKERS, "file": "data.py", "line": 3},
        {**WITH_WORKERS, "file": "data.py", "line": 9},
        {"kind": "loader", "name": "DataLoader"},  # made by a library
        {"kind": "optimizer", "name": "SGD", "file": "train.py", "line": 5},
    ]
    edits = edits_of([treatment], facts)
    assert [(edit.file, edit.line) for edit in edits] == [("data.py", 3), ("data.py", 9), ("train.py", AFTER_IMPORTS)]


def test_a_loader_without_workers_takes_nothing_that_is_of_workers() -> None:
    """It would refuse it when it is made."""
    facts = [{**WITH_WORKERS, "file": "a.py", "line": 3}, {**WITH_WORKERS, "values": {}, "file": "a.py", "line": 4}]
    ahead = a_treatment("x", keywords={"loader": {"prefetch_factor": "8"}})
    assert [edit.line for edit in edits_of([ahead], facts)] == [3]
    more = a_treatment("x", keywords={"loader": LOADER})
    assert [edit.line for edit in edits_of([more], facts)] == [3, 4]


def test_of_several_loaders_only_those_with_more_workers_get_fewer() -> None:
    facts = [
        {"kind": "loader", "name": "DataLoader", "file": "a.py", "line": line, "values": {"num_workers": workers}}
        for line, workers in ((3, 8), (4, 0), (5, 2))
    ]
    for side, lines in (("fewer", [3]), ("more", [4])):
        change = RunChange({"loader": {"num_workers": 2}, "workers": side})
        one = replace(a_treatment("x", keywords={"loader": {"num_workers": "2"}}), change=change)
        assert [edit.line for edit in edits_of([one], facts)] == lines


@pytest.mark.parametrize("end", ["\n", ""])
def test_the_patch_applies(tmp_path: Path, end: str) -> None:
    script = tmp_path / "sub" / "train.py"
    script.parent.mkdir()
    script.write_text(f"import torch\n\nx = DataLoader(ds)\ny = DataLoader(ds, num_workers=0){end}")
    edits = [Edit("sub/train.py", line, "DataLoader", LOADER) for line in (3, 4)]
    patch = make_patch(edits, tmp_path)
    done = subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr + patch
    assert script.read_text().count("num_workers=2, persistent_workers=True)") == 2


def test_a_file_that_is_no_python_or_not_there_has_no_patch(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = (")
    assert make_patch([Edit("broken.py", 1, "DataLoader", LOADER)], tmp_path) == ""
    assert make_patch([Edit("missing.py", 1, "DataLoader", LOADER)], tmp_path) == ""


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("step % 50 == 0", "step % 150 == 0"),
        ("(i + 1) % self.every == 0 or i + 1 == last", "(i + 1) % (3 * self.every) == 0 or i + 1 == last"),
        ("rank == 0 and not step % every", "rank == 0 and (not step % (3 * every))"),
        ("not step % 10 != 0", "not step % 30 != 0"),
        ("step % 2", ""),  # in odd rounds: of six they would be five
        ("step % 10 < 2", ""),
        ("step == 7", ""),
        ("step %% 10", ""),
    ],
)
def test_a_condition_holds_a_third_as_often(now: str, then: str) -> None:
    assert more_rarely(now, 3) == then
