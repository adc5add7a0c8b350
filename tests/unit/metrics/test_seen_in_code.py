"""What stacks, threads and accounts show of a job's code; what they do not show is absent, not denied."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfdoctor.analysis.recorded_case import measure_accounts
from perfdoctor.attribution.account import Account
from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.settings import read_code_settings
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.code_location import CodeLocation, locate
from perfdoctor.timeline.processes import Process, ProcessRoles
from perfdoctor.timeline.stacks import Stacks, StackSeries

TORCH = "/v/lib/python3.11/site-packages/torch"
OWN = Frame("/home/me/train.py", "main", 7)
LOADER = Frame(f"{TORCH}/utils/data/dataloader.py", "__next__", 1)
FETCH = Frame(f"{TORCH}/utils/data/_utils/fetch.py", "fetch", 1)
ROWS = Frame(f"{TORCH}/utils/data/dataset.py", "TensorDataset.__getitem__", 1)
SUBSET = Frame(f"{TORCH}/utils/data/dataset.py", "Subset.__getitem__", 1)
TRAINER = Process(10, 1, 0, None, "trainer", 10, 0)


def job(*frames: tuple[Frame, ...], times: int = 200, threads: tuple[str, ...] = ()) -> Any:
    """A trainer that was seen in each of some stacks in turn."""
    numbers = np.arange(times) % len(frames)
    series = StackSeries(TRAINER.pid, 1, np.arange(times) * 50_000_000, numbers, is_main=True)
    stacks = Stacks(list(frames), [locate(stack) for stack in frames], [series])
    named = {tid: SimpleNamespace(pid=TRAINER.pid, name=name) for tid, name in enumerate(threads)}
    return SimpleNamespace(
        processes=ProcessRoles((TRAINER,), {10: TRAINER}, 1), stacks=stacks, threads=SimpleNamespace(by_tid=named)
    )


def test_a_loader_is_seen_or_denied_only_after_enough_looks() -> None:
    assert read_code_settings(job((OWN, LOADER), (OWN,)))["loader"] == "yes"
    assert read_code_settings(job((OWN,)))["loader"] == "no"
    assert "loader" not in read_code_settings(job((OWN,), times=30))


def test_rows_of_tensors_are_told_from_datasets_of_the_jobs_own() -> None:
    assert read_code_settings(job((OWN, LOADER, FETCH, ROWS)))["dataset"] == "tensors"
    own = Frame("/home/me/train.py", "Images.__getitem__", 20)
    assert "dataset" not in read_code_settings(job((OWN, LOADER, FETCH, SUBSET, own)))


@pytest.mark.parametrize(
    ("threads", "backend"),
    [((), None), (("pt_gloo_runloop",), "gloo"), (("pt_gloo_runloop", "pt_nccl_watchdg"), "nccl")],
)
def test_the_backend_is_told_by_its_threads(threads: tuple[str, ...], backend: str | None) -> None:
    assert read_code_settings(job((OWN,), threads=threads)).get("backend") == backend


def test_numbers_of_the_code_are_absent_where_it_was_not_looked_at() -> None:
    account = Account(TRAINER)
    assert measure_accounts([account]) == ({}, {10: {}})
    account.add(0, 1.0, CodeLocation("data", "fetch"), [])
    account.add(0, 3.0, CodeLocation("forward"), [])
    measured = measure_accounts([account])
    assert measured.job == {}
    assert {name: number.value for name, number in measured.trainers[10].items()} == {"own_fetching": 0.25}
    account.add(0, 1.0, CodeLocation("other", "compile"), [])
    assert measure_accounts([account]).trainers[10]["own_compiling"].value == 0.2
    account.interpreter = 0.8
    account.own[0] = Amounts({"cpu.python_overhead": 2.0})
    assert measure_accounts([account]).job["interpreter_code"].value == 0.8
