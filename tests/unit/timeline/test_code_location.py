"""Phases are determined from frames of torch and the standard library, whatever the job's own code is called."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.timeline.code_location import library_call, location_of, marked_location

PACKAGES = "/env/lib/python3.11/site-packages"
TORCH = f"{PACKAGES}/torch"
PYTHON = "/usr/lib/python3.11"
LIGHTNING = f"{PACKAGES}/lightning"
ADAM = Frame(f"{TORCH}/optim/adam.py", "Adam.step", 226)
CLOSURE = Frame(f"{LIGHTNING}/pytorch/loops/optimization/automatic.py", "Closure.closure", 132)
MAIN = Frame("/home/me/train.py", "<module>", 10)
LOADER = Frame(f"{TORCH}/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._next_data", 1400)
LOADER_START = Frame(f"{TORCH}/utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._reset", 1276)
SAVEZ = Frame("/env/lib/python3.11/site-packages/numpy/lib/_npyio_impl.py", "savez_compressed", 723)
NEXT_INDEX = Frame(f"{TORCH}/utils/data/dataloader.py", "_BaseDataLoaderIter._next_index", 714)
WORKER = Frame(f"{TORCH}/utils/data/_utils/worker.py", "_worker_loop", 374)
COLLATE = Frame(f"{TORCH}/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", 55)
TRAINER = Frame(f"{PACKAGES}/transformers/trainer.py", "Trainer.training_step", 4018)
MODULE = Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1789)


@pytest.mark.parametrize(
    ("frames", "phase", "detail"),
    [
        ([], "other", ""),
        ([MAIN], "other", ""),
        ([MAIN, MODULE], "forward", ""),
        ([MAIN, Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 623)], "backward", "engine"),
        ([MAIN, Frame(f"{TORCH}/optim/sgd.py", "SGD.step", 120)], "optimizer", ""),
        ([MAIN, Frame(f"{TORCH}/optim/lr_scheduler.py", "step", 9)], "other", ""),
        ([MAIN, MODULE, Frame(f"{TORCH}/nn/functional.py", "cross_entropy", 3555)], "loss", ""),
        # A compiler runs the model, to see what it does.
        ([MAIN, MODULE, Frame(f"{TORCH}/_dynamo/convert_frame.py", "_compile", 990), MODULE], "other", "compile"),
        ([MAIN, Frame(f"{TORCH}/_dynamo/eval_frame.py", "compile_wrapper", 900), MODULE], "forward", ""),
        # A checkpointed block runs its forward pass again in the backward pass.
        (
            [
                Frame(f"{TORCH}/autograd/__init__.py", "backward", 300),
                Frame(f"{TORCH}/utils/checkpoint.py", "recompute_fn", 1600),
                MODULE,
            ],
            "backward",
            "recompute",
        ),
        # A function of the job's own may call a module there, too.
        ([Frame(f"{TORCH}/autograd/__init__.py", "backward", 300), MAIN, MODULE], "forward", ""),
        # So is a backward pass when it runs for the first time.
        (
            [
                Frame(f"{TORCH}/autograd/__init__.py", "backward", 300),
                Frame(f"{TORCH}/_inductor/compile_fx.py", "compile_fx_inner", 837),
            ],
            "other",
            "compile",
        ),
        ([MAIN, Frame(f"{TORCH}/serialization.py", "save", 900)], "saving", ""),
        # What an optimizer or a model that is spread over ranks gathers for a checkpoint is none of the step.
        (
            [
                MAIN,
                Frame(f"{TORCH}/distributed/optim/zero_redundancy_optimizer.py", "consolidate_state_dict", 564),
                Frame(f"{TORCH}/distributed/distributed_c10d.py", "broadcast", 2900),
            ],
            "saving",
            "",
        ),
        (
            [
                MAIN,
                Frame(f"{TORCH}/distributed/fsdp/_state_dict_utils.py", "_pre_state_dict_hook", 760),
                Frame(f"{TORCH}/distributed/distributed_c10d.py", "all_gather_into_tensor", 4000),
            ],
            "saving",
            "",
        ),
        # Compressing is the larger part of saving arrays; below a dataset it is the dataset's.
        ([MAIN, SAVEZ, Frame(f"{PYTHON}/zipfile.py", "_ZipWriteFile.write", 1140)], "saving", ""),
        ([MAIN, Frame(f"{TORCH}/utils/data/_utils/fetch.py", "fetch", 52), SAVEZ], "data", "fetch"),
        ([MAIN, Frame(f"{PYTHON}/gzip.py", "GzipFile.write", 300)], "saving", ""),
        ([MAIN, Frame(f"{PYTHON}/gzip.py", "GzipFile.read", 320)], "other", ""),
        ([MAIN, Frame(f"{PYTHON}/logging/__init__.py", "StreamHandler.flush", 1100)], "logging", ""),
        ([MAIN, Frame(f"{TORCH}/distributed/distributed_c10d.py", "all_reduce", 3000)], "gradient sync", "collective"),
        ([MAIN, LOADER, Frame(f"{PYTHON}/selectors.py", "select", 415)], "data", "loader wait"),
        ([MAIN, LOADER, Frame(f"{PYTHON}/multiprocessing/queues.py", "Queue.get", 122)], "data", "hand over"),
        # What other processes send outside of a loader, and what a pool of them makes.
        ([MAIN, Frame(f"{PYTHON}/multiprocessing/queues.py", "Queue.get", 122)], "data", "hand over"),
        ([MAIN, Frame(f"{PYTHON}/multiprocessing/connection.py", "_ConnectionBase.recv", 250)], "data", "hand over"),
        ([MAIN, Frame(f"{PYTHON}/multiprocessing/pool.py", "Pool.map", 367)], "data", "hand over"),
        ([MAIN, Frame(f"{PYTHON}/multiprocessing/queues.py", "Queue.put", 90)], "other", ""),
        ([MAIN, LOADER, NEXT_INDEX, Frame("/home/me/data.py", "Hard.__iter__", 9)], "data", "sampling"),
        ([MAIN, LOADER_START, NEXT_INDEX, Frame("/home/me/data.py", "Hard.__iter__", 9)], "data", "sampling"),
        # A transform may be a module: below the loader it is input work all the same.
        ([MAIN, Frame(f"{TORCH}/utils/data/_utils/fetch.py", "fetch", 52), MODULE], "data", "fetch"),
        ([MAIN, MODULE, Frame(f"{PACKAGES}/torchvision/transforms/v2/_geometry.py", "forward", 9)], "data", "fetch"),
        ([MAIN, Frame(f"{PACKAGES}/transformers/tokenization_utils_base.py", "__call__", 9)], "data", "fetch"),
        ([MAIN, Frame("/home/me/datasets/load.py", "load", 9)], "other", ""),
        # A library's training step takes a batch to the device before it calls the model.
        ([MAIN, TRAINER, Frame(f"{PACKAGES}/transformers/trainer.py", "Trainer._prepare_input", 9)], "transfer", ""),
        ([MAIN, TRAINER, Frame(f"{PACKAGES}/accelerate/utils/operations.py", "send_to_device", 9)], "transfer", ""),
        ([MAIN, Frame(f"{LIGHTNING}/fabric/utilities/apply_func.py", "batch_to", 9)], "transfer", ""),
        ([MAIN, Frame(f"{PACKAGES}/transformers/tokenization_utils_base.py", "BatchEncoding.to", 9)], "transfer", ""),
        ([WORKER, COLLATE, Frame(f"{PACKAGES}/transformers/tokenization_utils_base.py", "to", 9)], "data", "fetch"),
        ([MAIN, TRAINER], "other", ""),
        # So may a metric, which is none of the model; its function may be a loss.
        (
            [MAIN, MODULE, Frame(f"{PACKAGES}/torchmetrics/metric.py", "Metric.forward", 300), MODULE],
            "other",
            "afterwards",
        ),
        ([MAIN, MODULE, Frame(f"{PACKAGES}/torchmetrics/functional/image/ssim.py", "_ssim", 9)], "forward", ""),
        ([MAIN, Frame(f"{TORCH}/optim/lbfgs.py", "step", 300), MODULE], "forward", ""),
        ([MAIN, ADAM, CLOSURE, Frame("/home/me/module.py", "Net.training_step", 30)], "other", ""),
        ([MAIN, ADAM, CLOSURE, MODULE], "forward", ""),
        ([MAIN, Frame(f"{TORCH}/autograd/profiler_util.py", "EventList.table", 280)], "other", "profile"),
        ([MAIN, Frame(f"{TORCH}/autograd/profiler.py", "profile._parse_kineto_results", 440)], "other", "profile"),
        # a mark around an operator
        ([MAIN, Frame(f"{TORCH}/autograd/profiler.py", "record_function.__enter__", 760)], "other", ""),
        ([MAIN, Frame(f"{LIGHTNING}/pytorch/loggers/csv_logs.py", "CSVLogger.save", 80)], "logging", ""),
        ([MAIN, Frame(f"{LIGHTNING}/fabric/utilities/cloud_io.py", "_atomic_save", 117)], "saving", ""),
    ],
)
def test_places(frames: list[Frame], phase: str, detail: str) -> None:
    place = location_of(frames)
    assert (place.phase, place.detail) == (phase, detail)


def test_names_of_the_job_do_not_matter() -> None:
    frames = [Frame("/home/me/dataloader.py", "save_checkpoint", 3), Frame("/home/me/optimizer_step.py", "backward", 7)]
    assert location_of(frames).phase == "other"


def test_own_code_inside_backward_is_not_the_engine() -> None:
    engine = Frame(f"{TORCH}/autograd/graph.py", "_engine_run_backward", 979)
    assert location_of([MAIN, engine]).detail == "engine"
    assert location_of([MAIN, engine, Frame("/home/me/layers.py", "MyFunction.backward", 4)]).detail == ""


def test_worker_places() -> None:
    loop = Frame(f"{TORCH}/utils/data/_utils/worker.py", "_worker_loop", 349)
    get = Frame(f"{PYTHON}/multiprocessing/queues.py", "Queue.get", 113)
    put = Frame(f"{PYTHON}/multiprocessing/queues.py", "Queue.put", 90)
    fetch = Frame(f"{TORCH}/utils/data/_utils/fetch.py", "fetch", 52)
    assert location_of([loop, get]).detail == "worker idle"
    assert location_of([loop, put]).detail == "hand over"
    assert location_of([loop, fetch, Frame("/home/me/data.py", "__getitem__", 8)]).detail == "fetch"
    assert (
        location_of([loop, fetch, Frame("/home/me/data.py", "__getitem__", 8)]).line == "/home/me/data.py:8 __getitem__"
    )


def test_waiting_frames() -> None:
    assert location_of([MAIN, Frame(f"{PYTHON}/threading.py", "Condition.wait", 327)]).only_waits
    received = location_of([MAIN, Frame(f"{PYTHON}/multiprocessing/connection.py", "Connection._recv", 395)])
    assert received.waits
    assert not received.only_waits


def test_a_thread_that_runs_does_not_take_a_lock() -> None:
    """Stacks are sampled less often than states: the lock that a process took before would have its work."""
    locks = f"{PYTHON}/multiprocessing/synchronize.py"
    taken, given_back = (
        location_of([MAIN, Frame(locks, name, 94)]) for name in ("SemLock.__enter__", "SemLock.__exit__")
    )
    assert taken.waits
    assert taken.only_waits
    assert not given_back.only_waits


def test_hooks_of_diagnose_are_nobodys_line() -> None:
    hook = Frame("/src/perfdoctor/probes/inside/entries.py", "works.<locals>.backward", 196)
    engine = Frame(f"{TORCH}/autograd/__init__.py", "backward", 300)
    assert location_of([MAIN, hook, engine]).line == "/home/me/train.py:10 <module>"


def test_a_loaders_mark_does_not_hide_its_sampler() -> None:
    drawing = location_of([MAIN, LOADER, NEXT_INDEX])
    assert marked_location("data", "loader wait", drawing, marked=True).detail == "sampling"
    waiting = location_of([MAIN, LOADER, Frame(f"{PYTHON}/selectors.py", "select", 415)])
    assert marked_location("data", "loader wait", waiting, marked=True).detail == "loader wait"


ROTATE = Frame(f"{PACKAGES}/PIL/Image.py", "Image.rotate", 2300)


@pytest.mark.parametrize(
    ("below", "called"),
    [
        ((ROTATE, Frame(f"{PACKAGES}/PIL/Image.py", "Image.transform", 2800)), "PIL Image.rotate"),
        ((Frame(f"{PACKAGES}/torchvision/transforms/_container.py", "Compose.forward", 5), ROTATE), "PIL Image.rotate"),
        (
            (
                Frame(f"{PACKAGES}/sklearn/utils/_validation.py", "validate.<locals>.decorator.<locals>.wrapper", 216),
                Frame(f"{PACKAGES}/sklearn/metrics/_classification.py", "f1_score", 12),
            ),
            "sklearn f1_score",
        ),
        (
            (
                Frame("/usr/lib/python3.11/zipfile.py", "ZipFile.__init__", 1290),
                Frame("/usr/lib/python3.11/zipfile.py", "ZipFile._RealGetContents", 1350),
            ),
            "zipfile ZipFile",
        ),
        ((Frame("/usr/lib/python3.10/zipfile.py", "__init__", 1290),), ""),  # names before 3.11 have no class
        (
            (
                Frame(f"{PACKAGES}/accelerate/data_loader.py", "DataLoaderShard.__iter__", 500),
                Frame(f"{PACKAGES}/datasets/iterable_dataset.py", "MappedIterable._iter.<locals>.inputs", 1200),
                Frame(f"{PACKAGES}/datasets/iterable_dataset.py", "ShardsIterable._iter_arrow", 900),
            ),
            "datasets ShardsIterable",
        ),
        ((MODULE,), ""),
        ((), ""),
    ],
    ids=["outermost", "passed on", "wrapped", "made", "made before 3.11", "iterated over", "torch", "own"],
)  # fmt: skip
def test_what_own_code_calls_of_a_library_is_named(below: tuple[Frame, ...], called: str) -> None:
    assert library_call((ROTATE, MAIN, *below)) == called


def test_a_forked_workers_line_is_its_own_and_not_that_of_the_trainer_that_started_it() -> None:
    own = Frame("/home/me/data.py", "Photographs.__getitem__", 7)
    started = (MAIN, Frame(f"{TORCH}/utils/data/dataloader.py", "DataLoader.__iter__", 500), WORKER)
    assert location_of((*started, COLLATE)).line == ""
    assert location_of((*started, COLLATE, own)).line == "/home/me/data.py:7 Photographs.__getitem__"
    assert location_of((MAIN, LOADER)).line == "/home/me/train.py:10 <module>"
