"""Carries out advice as it is printed, in one process, and says of each piece whether it does what it promises.

Prints a JSON object: the check's name to "" or, where it failed, the traceback.
"""

# ruff: noqa: TID253

import ast
import contextlib
import copy
import gc
import importlib
import inspect
import itertools
import json
import logging
import math
import multiprocessing
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial, partialmethod
from typing import Any

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler

from perfdoctor.knowledge.libraries import CELLS, LOADER_OF_EVALUATION, LOADER_OF_TRAINER
from perfdoctor.results.edits import more_rarely
from tests.advice.printed import advice

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


class Lacking(Exception):
    """That a package is not installed that a check needs."""


def package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Lacking(f"no {name} here") from None


def run(id: str, names: dict[str, Any] | None = None, /, **values: Any) -> dict[str, Any]:
    """Runs one piece of advice as printed, with a script's names; returns the names after it."""
    usual = {
        "DataLoader": partial(loader_of, Numbers(16)), "ProcessPoolExecutor": ProcessPoolExecutor,
        "RandomSampler": RandomSampler, "ThreadPoolExecutor": ThreadPoolExecutor, "contextlib": contextlib, "gc": gc,
        "itertools": itertools, "logging": logging, "math": math, "numpy": numpy, "os": os, "queue": queue,
        "threading": threading, "torch": torch,
    }  # fmt: skip
    found = {**usual, **(names or {})}
    exec(compile(advice(id, **values), id, "exec"), found)
    return found


def last_value(id: str, names: dict[str, Any] | None = None, /, **values: Any) -> Any:
    """The value of the last line of advice whose last line is an expression, the loader's for instance."""
    *before, last = advice(id, **values).split("\n")
    made = {"DataLoader": partial(loader_of, Numbers(16)), "RandomSampler": RandomSampler, "torch": torch}
    names = {**made, **(names or {})}
    exec("\n".join(before), names)
    return eval(last, names)


def loader_of(dataset: Any, dots: Any = ..., **options: Any) -> DataLoader[Any]:
    """The loader that "DataLoader(..., what is advised)" stands for."""
    assert dots is ...
    return DataLoader(dataset, **{"batch_size": 4, **options})


class Numbers(Dataset[Any]):
    """Each sample is its number, and the process that made it."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([float(index)]), os.getpid()


def numbers_of(batches: Any) -> list[float]:
    return sorted(itertools.chain.from_iterable(batch[0].flatten().tolist() for batch in batches))


def small_model(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int) -> float:
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(32, 8, generator=generator)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


# --- input ---


@check
def workers_deliver_all_and_leave_the_arithmetic_its_cores() -> None:
    threads = torch.get_num_threads()
    names = {"made": []}
    code = advice("workers.more", now=0, useful=2, threads=2, pin=False, tight=None)
    assert "torch.set_num_threads(2)" in code
    numpy_names: dict[str, Any] = {"DataLoader": lambda *a, **o: names["made"].append(loader_of(Numbers(16), *a, **o))}
    torch.set_num_threads(1)
    exec(code, {**numpy_names, "torch": torch, "os": os})
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    [loader] = names["made"]
    assert (loader.num_workers, loader.persistent_workers) == (2, True)
    assert numbers_of(loader) == list(range(16))
    assert numbers_of(loader) == list(range(16))


@check
def a_loop_without_a_loader_gets_one_that_makes_its_batches() -> None:
    for workers in (1, 2):
        code = advice("workers.take_over", useful=workers, threads=None, shared=None, pin=False, loader=False)
        names: dict[str, Any] = {"order": lambda: range(5), "prepare": lambda number: torch.full((3,), float(number))}
        exec(code, names | {"torch": torch, "itertools": itertools}, names)
        for _ in range(2):  # epochs
            assert [batch.tolist() for batch in names["loader"]] == [[float(number)] * 3 for number in range(5)]
        assert names["loader"].num_workers == workers


@check
def what_a_loop_does_with_its_batches_is_done_by_its_loaders_workers() -> None:
    """The loader's own samples, and what the loop did with them, in the workers."""
    code = advice("workers.take_over", useful=2, threads=None, shared=None, pin=False, loader=True)
    made = {"torch": torch, "prepared": lambda batch: (batch[0] * 10, os.getpid())}
    *before, last = code.split("\n")
    exec("\n".join(before), made)
    loader = eval(last, {**made, "DataLoader": partial(loader_of, Numbers(16))})
    batches = list(loader)
    assert sorted(int(number) for numbers, _ in batches for number in numbers) == list(range(0, 160, 10))
    assert os.getpid() not in {pid for _, pid in batches}


@check
def unknown_cores_are_counted_where_the_job_runs() -> None:
    threads = torch.get_num_threads()
    code = advice("workers.more", now=1, useful=2, threads=None, divides=True, cores=None, pin=False, tight=None)
    exec(code, {"DataLoader": partial(loader_of, Numbers(16)), "torch": torch, "os": os})
    assert torch.get_num_threads() == max(1, len(os.sched_getaffinity(0)) - 2)
    torch.set_num_threads(threads)


@check
def workers_live_through_epochs() -> None:
    names = run("input.keep_workers", {"DataLoader": partial(loader_of, Numbers(16), num_workers=2)})
    epochs = [{int(pid) for _, pids in names["loader"] for pid in pids} for _ in range(2)]
    assert epochs[0] == epochs[1]
    assert os.getpid() not in epochs[0]


@check
def longer_epochs_are_longer() -> None:
    loader = last_value("input.longer_epochs", {"dataset": Numbers(16)})
    assert len(loader) == 100 * 16 / 4


@check
def batches_are_prepared_further_ahead() -> None:
    for id in ("io.further_ahead", "io.fewer_workers"):
        loader = last_value(id)
        assert loader.prefetch_factor == (8 if id == "io.further_ahead" else 1)
        assert numbers_of(loader) == list(range(16))


@check
def batches_out_of_order_are_all_there() -> None:
    loader = last_value("input.out_of_order", {"DataLoader": partial(loader_of, Numbers(16), num_workers=2)})
    assert loader.in_order is False
    assert numbers_of(loader) == list(range(16))


@check
def rows_of_tensors_are_all_taken_once() -> None:
    inputs, taken = torch.arange(10.0), []
    code = advice("input.whole_batches") + "\n    taken.append(batch)"
    exec(code, {"torch": torch, "inputs": inputs, "labels": -inputs, "batch_size": 4, "taken": taken})
    assert numbers_of(taken) == list(range(10))
    assert all(torch.equal(rows, -labels) for rows, labels in taken)


@check
def a_batch_is_two_tensors() -> None:
    *before, last = advice("input.fewer_tensors").split("\n")
    names = {"torch": torch, "DataLoader": partial(loader_of, [(torch.ones(3), 1)] * 8)}
    exec("\n".join(before), names)
    batch = next(iter(eval(last, names)))
    assert [tuple(part.shape) for part in batch] == [(4, 3), (4,)]


@check
def indices_are_drawn_many_at_a_time() -> None:
    names: dict[str, Any] = {"random": random, "all_to_draw_from": lambda: ([5, 6, 7], [0, 1, 1]), "batch_size": 4}
    code = "def draw():\n" + "\n".join(f"    {line}" for line in advice("input.draw_many").split("\n"))
    exec(code, names)
    drawn = list(names["draw"]())
    assert len(drawn) == 4000
    assert set(drawn) == {6, 7}


@check
def each_worker_opens_a_file_of_many_samples_once() -> None:
    names: dict[str, Any] = {}
    exec(advice("input.open_once").replace("...", "self.open()"), names)
    opened = iter([b"0123"])
    methods = {"open": lambda _: next(opened), "read": lambda _, file, index: file[index : index + 1]}
    dataset = type("Opened", (), {"__getitem__": names["__getitem__"], "opened": None, **methods})()
    assert [dataset[index] for index in (2, 0)] == [b"2", b"0"]


@check
def each_worker_opens_its_own_file() -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()
        names: dict[str, Any] = {"os": os, "decode": bytes.decode, "size": 2, "offset": 4}
        exec(advice("input.own_resource"), names)
        dataset = type("Own", (), {"__getitem__": names["__getitem__"], "path": file.name, "_file": None})()
        assert dataset[0] == "45"
        dataset._file.close()


@check
def only_the_update_is_under_the_lock() -> None:
    seen: list[tuple[str, bool]] = []
    lock = threading.Lock()
    acts = {
        "loss": type("Loss", (), {"backward": lambda _: seen.append(("backward", lock.locked()))})(),
        "optimizer": type("Optimizer", (), {"step": lambda _: seen.append(("step", lock.locked()))})(),
    }
    exec(advice("input.lock_update"), {**acts, "lock": lock})
    assert seen == [("backward", False), ("step", True)]


@check
def samples_of_a_batch_are_fetched_at_the_same_time() -> None:
    names: dict[str, Any] = {}
    exec(advice("io.at_the_same_time"), names)
    together = threading.Barrier(4, timeout=30)  # passes only those who wait for each other

    def fetch(index: int) -> int:
        together.wait()
        return index

    made = {"__getitems__": names["__getitems__"], "__len__": lambda self: 8, "_fetch": staticmethod(fetch)}
    with ThreadPoolExecutor(32) as pool:
        dataset = type("Remote", (), {**made, "_pool": pool})()
        assert [batch.tolist() for batch in DataLoader(dataset, batch_size=4)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@check
def a_jpeg_is_decoded_at_a_fraction_of_its_size() -> None:
    with tempfile.NamedTemporaryFile(suffix=".jpg") as file:
        Image.new("RGB", (800, 800), (255, 0, 0)).save(file.name)
        decoded = []

        class Seen:
            @staticmethod
            def open(path: str) -> Any:
                image = Image.open(path)
                load = image.load
                image.load = lambda: decoded.append(image.size) or load()
                return image

        names: dict[str, Any] = {"Image": Seen, "path": file.name, "size": (96, 96)}
        exec(advice("input.cheaper", kind="images"), names)
    assert names["image"].size == (96, 96)
    assert decoded[0] == (100, 100)


@check
def tokens_are_kept_and_read_again() -> None:
    with tempfile.TemporaryDirectory() as folder, moved(folder):
        texts = ["one two", "three"]
        names: dict[str, Any] = {"torch": torch, "numpy": numpy, "texts": texts, "index": 1}
        names["tokenize"] = lambda text: [len(text), 70_000]
        exec(advice("input.prepare_once", kind="text", arrow=False, drawn=None), names)
        assert names["one"].tolist() == [5, 70_000]
        assert torch.nn.Embedding(70_001, 2)(names["one"]).shape == (2, 2)
        assert names["ids"].tolist() == [7, 70_000, 5, 70_000]
        assert isinstance(names["ids"], numpy.memmap)
        os.mkdir("prepared")
        names = {"numpy": numpy, "index": 3, "sample": numpy.arange(5)}
        exec(advice("input.prepare_once", kind="", arrow=False, drawn=None), names)
        assert names["sample"].tolist() == [0, 1, 2, 3, 4]


@check
def rows_of_a_table_are_rows_of_a_tensor() -> None:
    pandas = package("pandas")
    frame = pandas.DataFrame({"name": ["a", "b"], "whole": [1, 2], "part": [0.5, 1.5]})
    names: dict[str, Any] = {"torch": torch, "frame": frame, "columns": ["whole", "part"], "index": 1}
    exec(advice("input.table_once"), names)
    assert names["sample"].dtype is torch.float32
    assert names["sample"].tolist() == [2.0, 1.5]


@contextlib.contextmanager
def moved(folder: str) -> Any:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@check
def each_sample_draws_its_own_flip() -> None:
    torch.manual_seed(0)
    batch = torch.arange(64 * 4, dtype=torch.uint8).reshape(64, 1, 1, 4)
    names = run("input.augment_on_gpu", {"batch": batch, "device": torch.device("cpu")})
    flipped = [bool(after[0, 0, 0] > after[0, 0, 3]) for after in names["batch"]]
    assert 10 < sum(flipped) < 54
    assert torch.equal(names["batch"].sort(-1).values * 255, batch.float())


@check
def rows_in_order_are_shuffled_and_all_there() -> None:
    datasets = package("datasets")
    names: dict[str, Any] = {"dataset": datasets.Dataset.from_dict({"x": list(range(256))}).shuffle(seed=1)}
    names = run("input.rows_in_order", {**names, "epoch": 0}, by_number=True)
    first = [row["x"] for row in names["dataset"]]
    names["dataset"].set_epoch(1)
    second = [row["x"] for row in names["dataset"]]
    assert sorted(first) == sorted(second) == list(range(256))
    assert first != second != list(range(256))


@check
def rows_of_a_map_lie_in_order_again() -> None:
    """As the last line of the advice says."""
    datasets = package("datasets")
    dataset = datasets.Dataset.from_dict({"x": list(range(8))}).shuffle(seed=1)
    expected = dataset["x"][:]
    code = advice("input.rows_in_order", by_number=True).partition("stay a map: ")[2].partition(", once")[0]
    names: dict[str, Any] = {"dataset": dataset}
    exec(code, names)
    assert dataset._indices is not None
    assert names["dataset"]._indices is None
    assert names["dataset"]["x"][:] == expected


@check
def tokens_of_a_table_are_made_once() -> None:
    datasets = package("datasets")
    made: list[int] = []

    def tokenize(rows: Any) -> Any:
        made.append(len(rows["text"]))
        return {"ids": [[len(text)] for text in rows["text"]]}

    code = advice("input.prepare_once", kind="text", arrow=True, drawn=None).replace(", num_proc=8", "")
    names: dict[str, Any] = {"dataset": datasets.Dataset.from_dict({"text": ["a", "bb"] * 50}), "tokenize": tokenize}
    exec(code, names)
    for _ in range(2):
        assert [int(row["ids"][0]) for row in names["dataset"]] == [1, 2] * 50
    assert made == [100]


@check
def environments_step_at_the_same_time() -> None:
    gymnasium = package("gymnasium")
    code = advice("helpers.step_together").replace("num_envs=8", "num_envs=2")
    names = {"gymnasium": gymnasium, "env_id": "CartPole-v1"}
    exec(code, names)
    assert names["observations"].shape[0] == 2
    names["envs"].step(numpy.array([0, 1]))
    names["envs"].close()


@check
def loaders_as_advised_deliver_all() -> None:
    """Those whose advice is an argument; the arguments of workers need some."""
    of_workers = {"DataLoader": partial(loader_of, Numbers(16), num_workers=1)}
    for id in ("input.without_workers", "cores.fewer_workers", "treat.fewer_workers", "treat.more_workers"):
        loader = last_value(id)
        assert loader.num_workers == (0 if id == "input.without_workers" else 2)
        assert numbers_of(loader) == list(range(16))
    for id, argument, value in (
        ("treat.keep_workers", "persistent_workers", True),
        ("treat.prefetch_more", "prefetch_factor", 8),
    ):
        loader = last_value(id, of_workers)
        assert getattr(loader, argument) == value
        assert numbers_of(loader) == list(range(16))


@check
def workers_of_a_fork_server_have_what_it_has_loaded() -> None:
    of_workers = {"DataLoader": partial(loader_of, Numbers(8), num_workers=1)}
    first, before = advice("input.fork_server").split("\n")
    names = {"multiprocessing": torch.multiprocessing, **of_workers}
    exec(before.partition("before: ")[2], names)
    loader = eval(first, names)
    assert numbers_of(loader) == list(range(8))
    assert {int(pid) for _, pids in loader for pid in pids}.isdisjoint({os.getpid()})


class Shards(torch.utils.data.IterableDataset[Any]):
    """Samples of files of very different sizes, spread over workers as the first line of the advice says."""

    def __iter__(self) -> Any:
        samples = (float(number) for size in (9, 1, 2) for number in range(size))
        names = {"samples": samples, "info": torch.utils.data.get_worker_info(), "itertools": itertools}
        spread = eval(advice("workers.spread_work").split("\n")[0].partition("#")[0], names)
        return ((torch.tensor([number]), names["info"].id) for number in spread)


@check
def samples_are_spread_over_workers_evenly_and_all_there() -> None:
    line = advice("workers.spread_work").split("\n")[1]
    loader = eval(line, {"DataLoader": partial(loader_of, Shards(), num_workers=2, batch_size=1)})
    batches = list(loader)
    assert numbers_of(batches) == sorted([*range(9), 0, *range(2)])
    assert sorted(int(worker) for _, workers in batches for worker in workers) == [0] * 6 + [1] * 6


@check
def only_the_shared_part_is_done_under_the_lock() -> None:
    lock, seen = threading.Lock(), []

    class Shared:
        @staticmethod
        def read(index: int) -> bytes:
            seen.append(("read", lock.locked()))
            return bytes([index])

    def decode(raw: bytes) -> int:
        seen.append(("decode", lock.locked()))
        return raw[0]

    names: dict[str, Any] = {"lock": lock, "shared": Shared, "decode": decode}
    code = "def get(index):\n" + "\n".join(f"    {line}" for line in advice("input.lock_shared_part").split("\n"))
    exec(code, names)
    assert names["get"](7) == 7
    assert seen == [("read", True), ("decode", False)]


@check
def what_a_lock_protects_is_copied_under_it() -> None:
    lock, shared, seen = threading.Lock(), [1, 2], []
    names = {"copy": copy, "lock": lock, "shared": shared, "work": lambda held: seen.append((held, lock.locked()))}
    exec(advice("input.lock_copy", line=None), names)
    shared.append(3)
    assert seen == [([1, 2], False)]


@check
def threads_are_as_many_as_advised() -> None:
    threads = torch.get_num_threads()
    for id in ("treat.threads", "cores.fewer_threads", "treat.workers_and_threads"):
        torch.set_num_threads(threads)
        code = advice(id, threads=threads + 1) if id.startswith("treat") else advice(id, fitting=threads + 1)
        line = next(line for line in code.split("\n") if "set_num_threads" in line)
        exec(line[line.index("torch.") :], {"torch": torch})
        assert torch.get_num_threads() == threads + 1, code
    torch.set_num_threads(threads)


@check
def what_is_waited_for_is_there_at_once() -> None:
    arrived = queue.Queue[int]()
    threading.Timer(0.05, arrived.put, (7,)).start()
    assert run("input.no_sleep", {"arrived": arrived}, line=None, share=0.3)["item"] == 7


@check
def tensors_shared_by_name_arrive() -> None:
    before = torch.multiprocessing.get_sharing_strategy()
    run("input.share_by_name")
    assert torch.multiprocessing.get_sharing_strategy() == "file_system"
    assert numbers_of(loader_of(Numbers(16), num_workers=1)) == list(range(16))
    torch.multiprocessing.set_sharing_strategy(before)


# --- reading and writing ---


@check
def one_call_reads_what_a_map_would() -> None:
    with tempfile.NamedTemporaryFile() as file:
        rows = numpy.arange(4000, dtype=numpy.float32).reshape(100, 40)
        rows.tofile(file.name)
        names = {"path": file.name, "dtype": numpy.float32, "size": rows[0].nbytes, "offset": 7 * rows[0].nbytes}
        names = run("io.mapped_pieces", names)
        os.close(names["file"])
    assert numpy.array_equal(names["sample"], rows[7])


@check
def saving_behind_keeps_model_and_optimizer_as_they_were() -> None:
    """While the file is written training goes on; from it another run continues as the first did."""
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    writing, began = threading.Event(), []

    def save_late(state: Any, path: str) -> None:
        began.append(path)
        writing.wait(30)
        torch.save(state, path)

    once, each = advice("io.save_behind", together=False).split("def in_memory")
    each, use = each.split("\nwhile")
    names: dict[str, Any] = {"model": model, "optimizer": optimizer}
    names["torch"] = type("torch", (), {"Tensor": torch.Tensor, "save": staticmethod(save_late)})
    exec(f"{once}def in_memory{each}", names)
    # As in most scripts, what saves is a function of its own.
    exec("def save(path):\n    while" + use.replace("\n", "\n    "), names)
    with tempfile.TemporaryDirectory() as folder, names["saver"]:
        for number in range(5):
            step(model, optimizer, number)
        names["save"](f"{folder}/first.pt")
        losses = [step(model, optimizer, number) for number in range(5, 10)]
        writing.set()
        names["save"](f"{folder}/second.pt")
        names["saving"].pop().result(30)
        assert began == [f"{folder}/first.pt", f"{folder}/second.pt"]
        saved = torch.load(f"{folder}/first.pt")
    again = small_model(seed=1)
    optimizer = torch.optim.Adam(again.parameters(), lr=0.5)
    again.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    assert [step(again, optimizer, number) for number in range(5, 10)] == losses


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Any:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield before
    finally:
        setattr(owner, name, before)


@check
def a_log_from_another_thread_is_written_once() -> None:
    written: list[tuple[str, str]] = []

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append((record.getMessage(), threading.current_thread().name))

    logger = logging.Logger("job")
    logger.addHandler(Slow())
    names: dict[str, Any] = {"logger": logger}
    *before, last = advice("io.another_thread", logger=True).split("\n")
    exec("\n".join(before), names)
    listener = eval(last.partition(".start()")[0], names)
    listener.start()
    logger.warning("step 1")
    listener.stop()
    assert [message for message, _ in written] == ["step 1"]
    assert written[0][1] != threading.main_thread().name


@check
def a_line_from_another_thread_is_written_once() -> None:
    written: list[tuple[str, str]] = []
    names: dict[str, Any] = {"log": lambda line: written.append((line, threading.current_thread().name))}
    exec(advice("io.another_thread", logger=False), {**names, "record": "step 1"}, names)
    names["writer"].shutdown()
    [(line, thread)] = written
    assert line == "step 1"
    assert thread != threading.main_thread().name


@check
def what_is_done_more_rarely_is_done_so_often() -> None:
    """Of 400 steps, with what was done at every fifth of them, at every second such one; where that is not known."""
    own = more_rarely("step % every == 0", 2)
    made: dict[str, int] = {}

    def count(*what: Any) -> None:
        made[id] = made.get(id, 0) + 1

    names: dict[str, Any] = {"evaluate": count, "save": count, "log": count, "every": 5}
    for id in ("evaluation.less_often", "io.save_less_often", "io.log_less_often"):
        code = advice(id, when=own)
        *before, call = advice(id, when="").splitlines()
        exec("\n".join(before), names)
        for step in range(400):
            exec(code, {**names, "step": step})
            exec(call if step % 5 == 0 else "", names)
    assert made == dict.fromkeys(made, 2 * 40)


@check
def a_log_without_flushes_is_whole_in_the_end() -> None:
    with tempfile.TemporaryDirectory() as folder:
        names: dict[str, Any] = {"path": f"{folder}/log.txt"}
        exec(advice("io.no_flush"), names)
        for step in range(10):
            print(step, file=names["log"])
        assert os.path.getsize(names["path"]) == 0, "nothing is written at each step"
        names["log"].close()
        with open(names["path"]) as file:
            assert file.read().split() == [str(step) for step in range(10)]


@check
def a_checkpoint_on_the_local_disk_is_whole() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run("io.faster_storage", {"state": small_model().state_dict(), "local": folder})
        assert torch.load(f"{folder}/checkpoint.pt").keys() == small_model().state_dict().keys()


@check
def arrays_that_are_not_packed_are_the_same() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arrays = {"weights": numpy.arange(6.0).reshape(2, 3)}
        run("io.save_unpacked", {"numpy": numpy, "path": f"{folder}/arrays.npz", "arrays": arrays}, package="numpy")
        assert (numpy.load(f"{folder}/arrays.npz")["weights"] == arrays["weights"]).all()
        run("io.save_unpacked", names := {"path": f"{folder}/archive.pkl"}, package="gzip")["file"].close()
        assert os.path.exists(names["path"])


@check
def half_of_what_is_held_out_is_evaluated() -> None:
    half = run("evaluation.subset", {"held_out": Numbers(16)})["held_out"]
    assert [int(half[number][0]) for number in range(len(half))] == list(range(0, 16, 2))
    loader = last_value("evaluation.larger_batches", {"batch_size": 4})
    assert [len(batch[0]) for batch in loader] == [8, 8]


# --- the interpreter and torch ---


@check
def a_layer_goes_over_the_sequence_as_its_cell_does() -> None:
    pieces = torch.randn(3, 7, 4)
    for cell, layer in CELLS.items():
        one = getattr(torch.nn, cell)(4, 5)
        made: dict[str, Any] = {"torch": torch, "self": types.SimpleNamespace(), "input_size": 4, "hidden_size": 5}
        code = advice("interpreter.whole_sequence", line="net.py:3 forward", cell=cell, layer=layer, share=0.5)
        construction, use = code.splitlines()
        exec(construction, made)
        whole = made["self"].rnn
        whole.load_state_dict({f"{name}_l0": value for name, value in one.state_dict().items()})
        exec(use, made := {**made, "pieces": pieces})
        state, rounds = None, []
        for number in range(7):
            state = one(pieces[:, number], state)
            rounds.append(state[0] if cell == "LSTMCell" else state)
        assert torch.allclose(made["outputs"], torch.stack(rounds, 1), atol=1e-6), cell


@check
def a_fused_optimizer_trains_the_same() -> None:
    losses = []
    for fused in (False, True):
        model = small_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        if fused:
            code = advice("optimizer.fused", trainer=False, update="Adam")
            made = {"torch": torch, "given": {"params": model.parameters(), "lr": 0.01}}
            exec(code.replace("...", "**given"), made)
            optimizer = made["optimizer"]
            assert optimizer.defaults["fused"]
        losses.append([step(model, optimizer, number) for number in range(10)])
    assert numpy.allclose(losses[0], losses[1], rtol=1e-5)


@check
def rows_that_no_batch_touches_are_not_updated() -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 1)
    made = {"torch": torch, "rows": 100, "width": 8, "lr": 0.01, "others": head.parameters()}
    exec(advice("optimizer.sparse_tables"), made)
    table, optimizers = made["table"], made["optimizers"]
    before, ids = table.weight.detach().clone(), torch.tensor([3, 5, 5])
    for _ in range(5):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = (head(table(ids)) - 1).square().mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    assert table.weight.grad.is_sparse
    assert (table.weight != before).any(1).nonzero().flatten().tolist() == [3, 5]


@check
def blocks_that_are_alike_compile_once() -> None:
    """With the backend that runs operators as they are: how often is compiled is Dynamo's part, not the backend's."""
    import torch._dynamo
    from torch._dynamo.testing import CompileCounter

    code = advice("interpreter.compile_model", sharded=False, recurrent=False, gpu=True).split("for equal")[0]
    blocks = code[code.index("for block") :].split("\n")[0]
    counts = []
    for line in ("model.compile()", blocks):
        torch._dynamo.reset()
        counter, model = CompileCounter(), Layered()
        with replaced(torch.nn.Module, "compile", partialmethod(torch.nn.Module.compile, backend=counter)):
            exec(line, {"model": model})
        plain = Layered()
        plain.load_state_dict(model.state_dict())
        inputs = torch.randn(4, 8, requires_grad=True)
        assert torch.allclose(model(inputs), plain(inputs))
        counts.append((counter.frame_count, counter.op_count))
    assert counts[0][0] == 1
    assert counts[1][0] == 1
    assert counts[1][1] * 4 == counts[0][1]  # the operators of one of four blocks, instead of all
    torch._dynamo.reset()


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.linear(inputs).tanh()


class Layered(torch.nn.Module):
    """A model of four equal blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(4))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for block in self.layers:
            inputs = block(inputs)
        return inputs


@check
def a_compiled_method_is_the_same_in_one_graph() -> None:
    import torch._dynamo
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter, plain = CompileCounter(), Block()
    names = {"Block": type("Block", (Block,), {"forward": Block.forward}), "torch": torch}
    with replaced(torch, "compile", partial(torch.compile, backend=counter)):
        run("arithmetic.memory_bound", names, line="train.py:9 Block.forward")
    compiled = names["Block"]()
    compiled.load_state_dict(plain.state_dict())
    inputs = torch.randn(4, 8)
    assert torch.allclose(compiled(inputs), plain(inputs))
    assert counter.frame_count == 1
    torch._dynamo.reset()


@check
def dynamic_shapes_compile_once() -> None:
    import torch._dynamo
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    with replaced(torch, "compile", partial(torch.compile, backend=counter)):
        names = {"torch": torch, "model": small_model()}
        compiled = eval(advice("interpreter.compile_once").split("\n")[0].partition("#")[0], names)
    for size in (3, 5, 7, 9):
        compiled(torch.randn(size, 8))
    assert counter.frame_count == 1
    torch._dynamo.reset()


@check
def collecting_happens_when_it_is_asked_for() -> None:
    *setup, when = advice("interpreter.collect_rarely", several_ranks=False).split("\n")
    collected: list[int] = []
    gc.callbacks.append(lambda phase, info: collected.append(info["generation"]) if phase == "stop" else None)
    try:
        names: dict[str, Any] = {}
        exec("\n".join(setup), names)
        collected.clear()
        for number in range(1, 1000):
            exec(when, {**names, "step": number, "kept": [[] for _ in range(100)]})
        assert collected == [2]
    finally:
        gc.callbacks.pop()
        gc.enable()
        gc.unfreeze()


@check
def objects_that_stay_are_not_looked_through_again() -> None:
    before, collected = gc.get_threshold(), []
    try:
        run("treat.freeze")
        frozen = gc.get_freeze_count()
        gc.callbacks.append(lambda phase, info: collected.append(info["generation"]) if phase == "stop" else None)
        kept = [[] for _ in range(10_000)]  # more than the usual threshold, which would have begun a collection
        assert (frozen > 10_000, collected, len(kept)) == (True, [], 10_000)
        calls = [step for step in range(300) if _collects(step)]
        assert calls == [0, 100, 200]
    finally:
        gc.callbacks.pop()
        gc.unfreeze()
        gc.set_threshold(*before)


def _collects(step: int) -> bool:
    calls: list[int] = []
    collector = type("gc", (), {"collect": staticmethod(lambda: calls.append(step))})
    exec(advice("treat.collect_rarely"), {"step": step, "gc": collector})
    return bool(calls)


@check
def without_anomaly_detection_no_tracebacks_are_kept() -> None:
    for id in ("left_on.no_anomaly_detection", "treat.no_anomaly_detection"):
        torch.autograd.set_detect_anomaly(True)
        with contextlib.suppress(ValueError):
            run(id)
        assert not torch.is_anomaly_enabled()
        made = torch.ones(1, requires_grad=True) * 2
        assert "traceback_" not in made.grad_fn.metadata


@check
def an_option_of_the_optimizer_trains_the_same() -> None:
    losses = []
    for option in ("", "fused", "foreach"):
        model = small_model()
        usual: dict[str, Any] = {"params": model.parameters(), "lr": 0.01}
        optimizer = torch.optim.AdamW(**usual)
        if option:
            code = advice("treat.optimizer", option=option).replace("...", "**usual")
            optimizer = eval(code, {"Optimizer": torch.optim.AdamW, "usual": {**usual, "params": model.parameters()}})
            assert optimizer.defaults[option]
        losses.append([step(model, optimizer, number) for number in range(10)])
    assert numpy.allclose(losses[0], losses[1], rtol=1e-5)
    assert numpy.allclose(losses[0], losses[2], rtol=1e-5)


@check
def what_is_not_trained_gets_no_gradients() -> None:
    model = torch.nn.Sequential()
    model.body, model.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    exec(advice("arithmetic.freeze_rest"), {"model": model})
    model.head(model.body(torch.ones(2, 4))).sum().backward()
    assert [one.grad is None for one in model.parameters()] == [True, True, False, False]


@check
def a_pass_without_gradients_makes_the_same() -> None:
    generator, noise = small_model(), torch.randn(4, 8)
    names = run("arithmetic.detach_unused", {"generator": generator, "noise": noise})
    assert torch.equal(names["fake"], generator(noise))
    assert not names["fake"].requires_grad


@check
def what_nobody_trains_still_hands_gradients_on() -> None:
    teacher, x = small_model(), torch.randn(4, 8, requires_grad=True)
    run("arithmetic.freeze_untrained", {"teacher": teacher}, module="teacher")
    teacher(x).sum().backward()
    assert all(one.grad is None for one in teacher.parameters())
    assert x.grad is not None


@check
def reductions_of_few_elements_are_whole_operations() -> None:
    x = torch.randn(2, 8, requires_grad=True)
    names = run("arithmetic.reduce_at_once", {"x": x, "dim": 0}, part=0.2)
    assert torch.allclose(names["length"], x.norm(dim=0))
    assert torch.allclose(names["variance"], x.var(0, correction=0))


@check
def a_program_that_is_kept_answers_each_time() -> None:
    echo = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"
    first, *rest = advice("interpreter.keep_program", line="").split("\n")
    names: dict[str, Any] = {"subprocess": subprocess, "command": [sys.executable, "-c", echo]}
    exec(first, names)
    for question in ("one", "two"):
        exec("\n".join(rest), {**names, "question": question}, kept := {})
        assert kept["answer"] == f"{question.upper()}\n"
    names["program"].communicate()


@check
def ffts_of_a_padded_length_give_the_same_back() -> None:
    x = torch.randn(2, 1009)
    names = run("arithmetic.pad_ffts", {"x": x, "torch": torch}, part=0.4)
    assert names["n"] == 1024
    assert torch.allclose(names["y"], x, atol=1e-5)


@check
def what_the_step_need_not_wait_for_runs_in_a_process_of_its_own() -> None:
    names: dict[str, Any] = {"multiprocessing": torch.multiprocessing, "work": os.getpid, "plain_data": None}
    code = advice("interpreter.own_process").replace("pool.submit(work, plain_data)", "done = pool.submit(work)")
    exec(code, names)
    assert names["done"].result(60) != os.getpid()
    names["pool"].shutdown()


@check
def what_is_kept_is_written_over_where_it_is_oldest() -> None:
    owner, ring = types.SimpleNamespace(keys=torch.zeros(7), written=0), [[0.0] * 7]
    for first in range(0, 30, 3):
        batch = torch.arange(float(first), first + 3)
        run("detours.joined_cut", {"self": owner, "batch": batch}, pieces=(("self.keys", "batch", "[at]"),))
        ring.append((ring[-1] + batch.tolist())[-7:])
        assert sorted(owner.keys.tolist()) == sorted(ring[-1])


@check
def what_grows_is_written_behind_what_there_is() -> None:
    kept, used, parts = torch.zeros(2, 9), 0, []
    for number in range(3):
        names = {"kept": kept, "used": used, "parts": parts, "new": torch.full((2, 3), float(number))}
        used = run("detours.joined", names, pieces=(("kept", "new", "[:, at]"),))["used"]
    assert used == 9
    assert torch.equal(kept, torch.cat(parts, 1))


@check
def detours_and_what_is_in_their_place_compute_the_same() -> None:
    table, tokens = torch.randn(5, 3, requires_grad=True), torch.randint(0, 5, (2, 4))
    product = torch.nn.functional.one_hot(tokens, 5).float() @ table
    assert torch.equal(
        last_value("detours.one_hot", {"table": table, "n": tokens}, pieces=(("table", "n", ""),)), product
    )
    layer = torch.nn.Linear(5, 3)
    pieces = (("layer.weight.T", "n", "layer.bias"),)
    looked_up = last_value("detours.one_hot", {"layer": layer, "n": tokens}, pieces=pieces)
    assert torch.allclose(looked_up, layer(torch.nn.functional.one_hot(tokens, 5).float()))
    (table**2).sum().backward(retain_graph=True)
    table.sum().backward()
    twice, table.grad = table.grad, None
    run("detours.two_passes", {"table": table}, pieces=(("(table**2).sum()", "table.sum()", ""),))
    assert torch.equal(table.grad, twice)
    u, by = (table * table).sum(), {"table": table, "grad": torch.autograd.grad}
    derived = run("detours.one_by_one", {"u": u, **by}, pieces=(("a,", "grad(u, (table,))", ""),))["a"]
    assert torch.equal(derived, 2 * table)
    head, x = torch.nn.Linear(3, 4), torch.randn(2, 6, 3)
    late = last_value("detours.indexed_late", {"head": head, "x": x}, pieces=(("head", "x[:, -1]", ""),))
    assert torch.allclose(late, head(x)[:, -1])
    scores, classes = torch.randn(2, 5, 7), torch.randint(7, (2, 5))
    pieces = (("F.cross_entropy", "F.cross_entropy(scores.flatten(0, 1), classes.flatten())", ""),)
    names = {"F": torch.nn.functional, "scores": scores, "classes": classes}
    turned = last_value("detours.turned", names, pieces=pieces)
    assert torch.allclose(turned, torch.nn.functional.cross_entropy(scores.transpose(1, 2), classes))
    a, b, F = torch.randn(9, 4), torch.randn(30, 4), torch.nn.functional
    for pairs, told in (
        ("((a[:, None] - b[None]) ** 2).sum(-1)", "torch.cdist(a, b).pow(2)"),
        ("F.cosine_similarity(a[:, None], b[None], dim=-1)", "F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT"),
    ):
        of_pairs = last_value("detours.all_pairs", {"a": a, "b": b, "F": F}, pieces=((pairs, told, ""),))
        assert torch.allclose(of_pairs, eval(pairs), atol=1e-4)
    maps, pixel = torch.randn(2, 6, 4, 4), torch.nn.Conv2d(6, 3, 1)
    for given in ("size=(9, 8), mode='bilinear', align_corners=False", "scale_factor=2"):
        pieces = (("pixel", f"F.interpolate(pixel(maps), {given})", ""),)
        first = last_value("detours.enlarged", {"F": F, "pixel": pixel, "maps": maps}, pieces=pieces)
        assert torch.allclose(first, pixel(eval(f"F.interpolate(maps, {given})")), atol=1e-5)
    part = torch.arange(20.0).reshape(10, 2)
    drawn = run("detours.stacked", {"part": part, "filled": 5, "batch_size": 64}, pieces=(("self.rows", "", ""),))
    assert drawn["batch"].shape == (64, 2)
    assert set(drawn["batch"][:, 0].tolist()) <= set(part[:5, 0].tolist())
    rows = [numpy.full(3, number, numpy.float32) for number in range(4)]
    made = run("detours.listed", {"rows": rows}, pieces=(("torch.tensor", "[row for row in rows]", ""),))
    assert torch.equal(eval(advice("detours.listed", pieces=(("torch.tensor", "[row for row in rows]", ""),)), made),
                       torch.tensor(numpy.array(rows)))  # fmt: skip


@check
def one_call_does_to_all_parameters_what_the_loop_did() -> None:
    net, kept, rate = small_model(), small_model(), 0.1
    net(torch.randn(4, 8)).sum().backward()
    names: dict[str, Any] = {"torch": torch, "net": net, "kept": kept, "rate": rate}
    expected = [0.9 * one + 0.1 * other for one, other in zip(kept.parameters(), net.parameters(), strict=True)]
    run("detours.averaged", names, pieces=(("kept.parameters()", "net.parameters()", "1 - rate"),))
    assert all(map(torch.allclose, kept.parameters(), expected))
    lower = [one - rate * one.grad for one in net.parameters() if one.grad is not None]
    run("detours.descended", names, pieces=(("net.parameters()", "rate", ""),))
    assert all(map(torch.allclose, net.parameters(), lower))
    names = {"m": torch.ones(3), "gradient": torch.arange(3.0), "beta": 0.9, "parameter": torch.ones(3),
             "kept": torch.ones(3), "divisor": torch.full((3,), 2.0), "rate": 0.5}  # fmt: skip
    mean = 0.9 * names["m"] + 0.1 * names["gradient"]
    run("detours.made_new", names, pieces=(("m", "b * m + (1 - b) * g", ""),))
    assert torch.allclose(names["m"], mean)
    assert torch.allclose(names["parameter"], torch.full((3,), 0.75))


@check
def a_mask_is_made_once_for_each_length() -> None:
    first, *rest = advice("detours.unchanged", pieces=(("torch.triu(torch.ones(n, n))", "n", "mask"),)).split("\n")
    names: dict[str, Any] = {"torch": torch}
    exec(first, names)
    masks = []
    for length in (3, 4, 3):
        exec("\n".join(rest), {**names, "n": length}, kept := {})
        masks.append(kept["mask"])
    assert masks[0] is masks[2]
    assert [len(mask) for mask in masks] == [3, 4, 3]


@check
def attention_gives_the_same_without_its_weights() -> None:
    layer, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.rand(2, 5, 8)
    mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    names = {"layer": layer, "x": x, "mask": mask}
    kept = run("detours.weights_unused", names, pieces=(("layer", "x, x, x, attn_mask=mask", ""),))
    assert torch.allclose(kept["output"], layer(x, x, x, attn_mask=mask)[0], atol=1e-6)
    assert kept["_"] is None


@check
def what_never_changes_is_made_once() -> None:
    pieces = (("torch.cdist(edges, edges)", "id(edges), x.size(0)", "near"), ("edges @ edges.T", "id(edges)", "return"))
    first, *rest = advice("detours.unchanged", pieces=pieces[:1]).split("\n")
    names: dict[str, Any] = {"torch": torch}
    exec(first, names)
    edges, other, seen = torch.rand(4, 2), torch.rand(4, 2), []
    for now, x in ((edges, 2), (edges, 2), (other, 2), (edges, 2), (edges, 3)):
        exec("\n".join(rest), {**names, "edges": now, "x": torch.zeros(x)}, kept := {})
        seen.append(kept["near"])
    assert [one is seen[0] for one in seen] == [True, True, False, False, False]
    assert all(map(torch.equal, seen, [torch.cdist(one, one) for one in (edges, edges, other, edges, edges)]))
    assert advice("detours.unchanged", pieces=pieces).endswith('return kept_1["made"]')


@check
def a_model_is_copied_into_the_copy_that_there_is() -> None:
    model, kept = small_model(), None
    for seed in range(3):
        model.load_state_dict(small_model(seed).state_dict())
        before, names = kept, {"model": model, "kept": kept, "copy": copy}
        kept = run("detours.copied", names, pieces=(("kept", "model", ""),))["kept"]
        assert before is None or kept is before
        assert all(map(torch.equal, kept.parameters(), model.parameters()))


@check
def plots_are_made_at_every_hundredth_step_and_neighbours_once() -> None:
    first, second, third = advice("interpreter.more_rarely").split("\n")
    made = []
    for number in range(300):
        exec(first.replace("...", "made.append(step)", 1).partition("#")[0], {"step": number, "made": made})
    assert made == [0, 100, 200]
    with ThreadPoolExecutor(1) as pool:
        exec(second, {"pool": pool, "work": made.append, "arrays": 1})
    assert made[-1] == 1
    names: dict[str, Any] = {"kept": None, "work": lambda: made.append("neighbours") or made}
    for _ in range(3):
        exec(third, names)
    assert made.count("neighbours") == 1


@check
def a_profiler_that_begins_later_records_five_steps() -> None:
    with tempfile.TemporaryDirectory() as folder, moved(folder):
        model, optimizer = small_model(), None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        names = {"loader": range(30), "train": lambda number: step(model, optimizer, number)}
        run("gpu_idle.trace_later", names)
        [file] = os.listdir("traces")
        with open(f"traces/{file}") as opened:
            told = json.load(opened)["traceEvents"]
    steps = [event for event in told if str(event.get("name")).startswith("ProfilerStep#")]
    assert len({event["name"] for event in steps}) == 5


@check
def recomputed_blocks_train_the_same() -> None:
    gradients = []
    for id in ("", "arithmetic.keep_activations", "gpu.checkpoint_less", "gpu.checkpoint_selectively"):
        torch.manual_seed(0)
        model, calls = Layered(), []
        inputs = torch.randn(4, 8, requires_grad=True)
        for block in model.layers:
            block.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        x = inputs
        for number, block in enumerate(model.layers):
            names: dict[str, Any] = {"block": block, "x": x, "number": number, "torch": torch}
            if not id:
                x = block(x)
            elif id != "gpu.checkpoint_selectively":
                names["checkpoint"] = torch.utils.checkpoint.checkpoint
                exec(advice(id).split("\n")[0], names)
                x = names["x"]
            else:
                *before, last = advice(id).split("\n")
                exec("\n".join(before), names)
                x = eval(last, names)
        x.sum().backward()
        gradients.append([one.grad for one in model.parameters()])
        assert len(calls) == {"": 4, "gpu.checkpoint_selectively": 8}.get(id, 6)
    for others in gradients[1:]:
        assert all(torch.allclose(*pair) for pair in zip(gradients[0], others, strict=True))


@check
def sixteen_bits_compute_and_parameters_keep_thirty_two() -> None:
    """On the device that is here; of float16 the scaler as well."""
    for id in ("gpu.bfloat16", "gpu.float16", "gpu.halve_bytes", "gpu.try_mixed_precision"):
        model, inputs = small_model(), torch.randn(32, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen: list[torch.dtype] = []
        model[0].register_forward_hook(lambda _, __, output, seen=seen: seen.append(output.dtype))
        names = {"model": model, "inputs": inputs, "targets": inputs.sum(1, keepdim=True), "optimizer": optimizer}
        names["criterion"] = torch.nn.MSELoss()
        code = advice(id, loop="") if id in ("gpu.bfloat16", "gpu.float16") else advice(id)
        before = [one.detach().clone() for one in model.parameters()]
        code = code.replace("'cuda'", "'cpu'").replace("GradScaler()", "GradScaler('cpu')")
        once, _, each = code.rpartition("# once\n")
        names["torch"] = torch
        exec(once, names)
        for _ in range(8):  # the scaler's first guesses are too large
            optimizer.zero_grad()
            exec(each, names)
        assert set(seen) == {torch.float16 if id == "gpu.float16" else torch.bfloat16}
        assert {one.grad.dtype for one in model.parameters() if one.grad is not None} == {torch.float32}
        if id == "gpu.float16":  # which steps by itself
            assert any(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


@check
def values_stay_until_they_are_wanted() -> None:
    losses = [torch.tensor(float(number), requires_grad=True) for number in range(3)]
    total, mask = torch.zeros(()), torch.tensor([True, False])
    names: dict[str, Any] = {"total": total, "step": 1, "mask": mask, "values": torch.tensor([3.0, 4.0])}
    for loss in losses:
        names = run("gpu_idle.keep_values", {**names, "loss": loss})
    assert names["total"].item() == 3.0
    assert not names["total"].requires_grad
    assert names["values"].tolist() == [3.0, 0.0]


@check
def an_evaluation_in_inference_mode_records_nothing_and_training_goes_on() -> None:
    model, seen = torch.nn.Sequential(small_model(), torch.nn.Dropout()), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def evaluate() -> None:
        result = model(torch.ones(2, 8))
        seen.append((result.requires_grad, result.is_inference(), model.training))

    run("evaluation.inference_mode", {"model": model, "evaluate": evaluate})
    assert seen == [(False, True, False)]
    assert model.training
    step(model, optimizer, 0)


def takes(function: Any, *codes: str) -> bool:
    """Whether a function takes the arguments that some advice calls it with."""
    calls = [node for code in codes for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    given = {word.arg for call in calls for word in call.keywords}
    return bool(given) and given <= inspect.signature(function).parameters.keys()


@check
def lightnings_trainer_takes_what_it_is_told() -> None:
    trainer = package("lightning.pytorch").Trainer
    accumulates = advice("communication.fewer_rounds", way="lightning")
    others = [advice(id, loop="lightning") for id in ("gpu.bfloat16", "gpu.float16", "io.log_less_often")]
    assert takes(trainer, accumulates, *others)
    saves = advice("io.save_less_often", loop="lightning")
    assert takes(package("lightning.pytorch.callbacks").ModelCheckpoint, saves)


@check
def transformers_arguments_are_what_they_are_told() -> None:
    arguments = package("transformers").TrainingArguments
    accumulates = advice("communication.fewer_rounds", way="transformers")
    loaders = {*LOADER_OF_TRAINER.values(), *LOADER_OF_EVALUATION.values()}
    loader = f"TrainingArguments(..., {', '.join(f'{name}=2' for name in sorted(loaders))})"
    rarer = ("evaluation.less_often", "io.save_less_often", "io.log_less_often")
    others = [advice(id, loop="transformers") for id in ("gpu.bfloat16", "gpu.float16", *rarer)]
    assert takes(arguments, accumulates, loader, *others, advice("optimizer.fused", trainer=True, update="Adam"))


@check
def a_batch_is_padded_to_its_longest_text() -> None:
    transformers = package("transformers")
    words = package("tokenizers").Tokenizer(package("tokenizers.models").WordLevel({"[PAD]": 0, "a": 1}, unk_token="a"))
    words.pre_tokenizer = package("tokenizers.pre_tokenizers").Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", model_max_length=64)
    names = {"tokenizer": tokenizer, "texts": ["a a a"] * 8 + ["a"] * 8}
    names |= {"transformers": transformers, "DataLoader": DataLoader}
    batches = list(run("arithmetic.pad_less", names)["loader"])
    assert [tuple(batch["attention_mask"].shape) for batch in batches] == [(8, 3), (8, 1)]


@check
def attention_in_one_call_is_the_same() -> None:
    q, k, v = torch.randn(3, 2, 4, 16, 8)
    fused = eval(advice("gpu.fused_attention"), {"torch": torch, "q": q, "k": k, "v": v})
    written_out = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(8), -1) @ v
    assert torch.allclose(fused, written_out, atol=1e-5)


@check
def channels_last_computes_the_same() -> None:
    before = torch.backends.cudnn.benchmark
    model, inputs = torch.nn.Conv2d(3, 4, 3), torch.randn(2, 3, 8, 8)
    expected = model(inputs)
    names = run("gpu.channels_last", {"model": model, "inputs": inputs})
    assert torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before
    assert names["inputs"].is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(names["model"](names["inputs"]), expected, atol=1e-5)


@check
def tf32_is_allowed_by_one_way() -> None:
    before = torch.get_float32_matmul_precision()
    run("gpu.tf32")
    assert torch.backends.cuda.matmul.allow_tf32
    torch.set_float32_matmul_precision(before)


@check
def helpers_that_are_all_asked_first_work_at_the_same_time() -> None:
    context = multiprocessing.get_context("fork")
    pairs, all_asked = [context.Pipe() for _ in range(3)], context.Barrier(3)

    def serve(connection: Any) -> None:
        request = connection.recv()
        all_asked.wait(30)
        connection.send((request, os.getpid()))

    helpers = [context.Process(target=serve, args=(theirs,), daemon=True) for _, theirs in pairs]
    for helper in helpers:
        helper.start()
    ours = [one for one, _ in pairs]
    names = run("helpers.ask_together", {"connections": ours, "requests": "abc"}, helpers=3, at_once=1.0)
    assert names["answers"] == [(request, helper.pid) for request, helper in zip("abc", helpers, strict=True)]
    for helper in helpers:
        helper.join(30)


@check
def a_helper_is_asked_before_the_step_that_it_works_beside() -> None:
    ours, theirs = multiprocessing.Pipe()
    trained: list[str] = []

    def train(batch: str) -> None:
        trained.append(batch)
        theirs.send(theirs.recv() + "'")  # the request is there already

    names = {"connection": ours, "next_request": "b", "train": train, "batch": "a"}
    assert run("helpers.ask_ahead", names)["batch"] == "b'"
    assert trained == ["a"]


@check
def a_helper_answers_a_list_of_requests() -> None:
    ours, theirs = multiprocessing.Pipe()
    with ThreadPoolExecutor(1) as helper:
        answered = helper.submit(lambda: theirs.send([request.upper() for request in theirs.recv()]))
        assert run("helpers.larger_requests", {"connection": ours, "requests": ["a", "b"]})["answers"] == ["A", "B"]
        answered.result(30)


@check
def a_helper_sends_an_array_for_a_list() -> None:
    ours, theirs = multiprocessing.Pipe()
    run("helpers.send_arrays", {"connection": theirs, "rows": [(1.0, 2.0), (3.0, 4.0)]})
    received = ours.recv()
    assert received.dtype == numpy.float32
    assert received.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@check
def ranks_get_batches_of_equal_cost() -> None:
    lengths = numpy.random.default_rng(0).integers(1, 100, 64)
    ranks = []
    for rank in range(4):
        names: dict[str, Any] = {"data": lengths, "length_of": lambda number: lengths[number]}
        names |= {"rank": rank, "world_size": 4}
        ranks.append(run("arithmetic.equal_work", names, rank=1, share=0.2)["mine"])
    assert sorted(number for mine in ranks for number in mine) == list(range(64))
    costs = [[lengths[mine[batch : batch + 4]].sum() for batch in range(0, 16, 4)] for mine in ranks]
    assert max(numpy.ptp(costs, axis=0)) < 0.2 * numpy.mean(costs)


@check
def what_was_in_double_precision_is_in_single() -> None:
    features = torch.from_numpy(numpy.random.default_rng(0).normal(size=(8, 3)))
    names = {"model": torch.nn.Linear(3, 2).double(), "features": features, "targets": torch.arange(8) % 2}
    names = run("arithmetic.single_precision", names, part=1.0, unfolds=True)
    loss = torch.nn.functional.cross_entropy(names["model"](names["features"]), names["targets"])
    assert loss.dtype == torch.float32


@check
def what_the_step_need_not_wait_for_runs_beside_it() -> None:
    done: list[str] = []
    names = {"concurrent": __import__("concurrent.futures"), "output": torch.ones(2, requires_grad=True) * 2}
    names = run(
        "interpreter.shorten_outside", {**names, "work": lambda x: done.append(threading.current_thread().name)}
    )
    names["done"].result(30)
    names["executor"].shutdown()
    assert done != [threading.main_thread().name]


if __name__ == "__main__":
    results = {}
    for name, function in CHECKS.items():
        try:
            function()
            results[name] = ""
        except Lacking as lacking:
            results[name] = str(lacking)
        except Exception:  # noqa: BLE001 - whatever goes wrong is the result
            results[name] = traceback.format_exc()
    print(json.dumps(results))
