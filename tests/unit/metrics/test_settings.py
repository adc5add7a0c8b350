"""Settings of a job, from recordings with known contents; what stacks and threads do not show is absent, not denied."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.settings import Settings, has_loader, read_code_settings, read_settings
from perfdoctor.recording.own_source import SourceCall, SourceLoop, SourceOnce, SourceRounds, SourceState
from perfdoctor.recording.schema import Fact, Reading, Sample, ThreadSample, ThreadSeen
from perfdoctor.timeline.affinity import Affinity
from perfdoctor.timeline.code_location import location_of
from perfdoctor.timeline.threads import JobThreads, read_threads
from tests.builders import jobs
from tests.builders.jobs import OWN, START, at

PACKAGES = "/v/lib/python3.11/site-packages"
LOADER = Frame(f"{PACKAGES}/torch/utils/data/dataloader.py", "__next__", 1)
FETCH = Frame(f"{PACKAGES}/torch/utils/data/_utils/fetch.py", "fetch", 1)
ROWS = Frame(f"{PACKAGES}/torch/utils/data/dataset.py", "TensorDataset.__getitem__", 1)
SUBSET = Frame(f"{PACKAGES}/torch/utils/data/dataset.py", "Subset.__getitem__", 1)
TRANSFORM = Frame(f"{PACKAGES}/torchvision/transforms/functional.py", "f", 1)
TRAINER = 10


def read(samples: Iterable[Sample], roles: list[tuple[int, tuple[int, ...]]]) -> Settings:
    with jobs.recorded(samples) as recording:
        threads = JobThreads(read_threads(recording))
        return read_settings(recording, threads, Affinity(recording.facts, threads), roles)


def test_nothing_seen_is_nothing_said() -> None:
    assert read([], []) == {"trainers": 0.0}


def test_environment_is_the_first_trainers() -> None:
    samples = [
        *jobs.process(7, OMP_NUM_THREADS="9"),
        *jobs.process(10),
        *jobs.process(40, RANK="1"),
    ]
    settings = read(samples, [(10, ()), (40, ())])
    assert settings["env.RANK"] == "1"
    assert "env.OMP_NUM_THREADS" not in settings
    assert settings["trainers"] == 2


def test_cores_are_the_tightest_limit() -> None:
    samples: list[Sample] = [
        Fact(START, "cpu", "host", "logical_cores", "64"),
        Fact(START, "cpu", "host", "cpu_model", "A CPU"),
        Reading(START, "cpu", "pid:10", "allowed_cores", 16.0),
        Reading(START, "cpu", "cgroup:/a", "quota_cores", 8.0),
        Reading(START, "cpu", "cgroup:/a/b", "quota_cores", 2.5),
        Reading(START, "memory", "cgroup:/a", "limit_bytes", 8e9),
    ]
    expected = {
        "host_cores": 64, "affinity_cores": 16, "quota_cores": 2.5, "cores": 2.5, "memory_limit_bytes": 8e9,
        "cpu_model": "A CPU",
    }  # fmt: skip
    settings = read(samples, [(10, ())])
    assert {name: settings.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("threads", "quota", "physical"), [("2", None, 8.0), ("2", 12.0, 8.0), ("2", 6.0, 6.0), ("1", None, None)]
)
def test_a_quota_is_of_time_and_may_be_spent_on_as_many_physical_cores(
    threads: str, quota: float | None, physical: float | None
) -> None:
    samples: list[Sample] = [
        Fact(START, "cpu", "host", "threads_per_core", threads),
        Reading(START, "cpu", "pid:10", "allowed_cores", 16.0),
        *([] if quota is None else [Reading(START, "cpu", "cgroup:/a", "quota_cores", quota)]),
    ]
    assert read(samples, [(10, ())]).get("physical_cores") == physical


def test_hardware_is_told_as_far_as_it_was_recorded() -> None:
    samples: list[Sample] = [
        Reading(START, "memory", "host", "memory_total_bytes", 16e9),
        Fact(START, "io", "device:nvme0n1", "model", "A disk"),
        Fact(START, "io", "device:nvme0n1", "rotates", "no"),
        Fact(START, "io", "device:vda", "rotates", "yes"),
    ]
    settings = read(samples, [(10, ())])
    assert settings["memory_bytes"] == 16e9
    assert (settings["disk.nvme0n1"], settings["disk_kind.nvme0n1"]) == ("A disk", "solid state")
    assert not any("vda" in name for name in settings), "a virtual disk tells nothing of the real one"
    assert "kernel" not in settings


def test_the_probes_own_answer_comes_first() -> None:
    samples = [
        Reading(START, "cpu", "job", "usable_cores", 3.0),
        Reading(START, "cpu", "pid:10", "allowed_cores", 16.0),
    ]
    assert read(samples, [(10, ())])["cores"] == 3


@pytest.mark.parametrize("forked", [True, False])
def test_workers_are_counted_over_time(forked: bool) -> None:
    """One worker lives all 10 seconds, a second one dies halfway and is replaced."""
    samples = [
        *jobs.process(10),
        *jobs.process(20, forked=forked),
        *jobs.process(21, forked=forked, ended_s=5),
        *jobs.process(22, forked=forked, started_s=5),
        *jobs.process(99, ended_s=10),
    ]
    settings = read(samples, [(10, (20, 21, 22))])
    assert settings["workers"] == 2
    assert settings["start_method"] == ("fork" if forked else "spawn")


@pytest.mark.parametrize(
    ("first", "second", "by_script"),
    [
        ({"command": "python -c from multiprocessing.spawn import spawn_main", "forked": False}, None, True),
        ({"forked": True}, None, True),
        ({"forked": False}, {"forked": True}, True),  # the script itself is the first one
        ({"command": "python train.py", "forked": False}, None, False),
    ],
)
def test_ranks_that_the_script_starts_are_told_from_a_launchers(
    first: dict[str, Any], second: dict[str, Any] | None, by_script: bool
) -> None:
    samples = [*jobs.process(10, **first, ended_s=10), *jobs.process(40, **(second or first), ended_s=10)]
    assert ("ranks_started" in read(samples, [(10, ()), (40, ())])) is by_script
    assert "ranks_started" not in read(samples, [(10, ())])


def test_the_pinning_thread_is_known_by_torchs_own_name() -> None:
    threads = [*jobs.thread(10, 10), *jobs.thread(11, 10, name="pt_data_pin")]
    settings = read(threads, [(10, ())])
    assert settings["pin_thread"] == "yes"
    assert settings["trainer_threads"] == 2


def test_threads_that_follow_one_another_are_one_at_a_time() -> None:
    """As those that feed the queues of workers that are started for each epoch."""
    feeders: list[Sample] = []
    for tid, (began_s, ended_s) in {11: (0, 3), 12: (3, 6), 13: (6, 10)}.items():
        feeders.append(ThreadSeen(at(began_s), tid, 10, "python"))
        for time_s, state in ((began_s, "S"), (ended_s, "X")):
            feeders.append(ThreadSample(at(time_s), tid, state, None, "", 0, 0, None, None, None, None))
    assert read([*jobs.thread(10, 10), *feeders], [(10, ())])["trainer_threads"] == 2


def test_no_pinning_thread() -> None:
    threads = [*jobs.thread(10, 10), *jobs.thread(21, 20, name="pt_data_pin")]
    assert read(threads, [(10, (20,))])["pin_thread"] == "no"


def test_mounts_and_gpus() -> None:
    facts = [
        Fact(START, "io", "mount:/", "filesystem", "ext4"),
        Fact(START, "io", "mount:/", "network", "no"),
        Fact(START, "io", "mount:/data", "filesystem", "nfs4"),
        Fact(START, "io", "mount:/data", "network", "yes"),
        Fact(START, "gpu", "gpu:0", "name", "A GPU"),
        Fact(START, "gpu", "gpu:0", "compute_capability", "8.0"),
    ]
    settings = read(facts, [(10, ())])
    assert settings["mount./"] == "ext4"
    assert settings["mount./data"] == "nfs4 network"
    assert (settings["gpus"], settings["gpu_name"], settings["compute_capability"]) == (1, "A GPU", 8.0)


def of_code(*stacks: tuple[Frame, ...], times: int = 200, threads: tuple[str, ...] = ()) -> Settings:
    """The settings of a trainer that was seen in each of some stacks in turn."""
    named = [row for tid, name in enumerate(threads) for row in jobs.thread(tid, TRAINER, name=name)]
    seen = jobs.stacks(TRAINER, *stacks, times=times)
    return read_code_settings(jobs.timeline([*jobs.process(TRAINER), *named, *seen]))


def test_a_loader_is_seen_or_denied_only_after_enough_looks() -> None:
    assert of_code((OWN, LOADER), (OWN,))["loader"] == "yes"
    assert of_code((OWN,))["loader"] == "no"
    assert "loader" not in of_code((OWN,), times=30)


@pytest.mark.parametrize(("call", "loads"), [(LOADER, True), (TRANSFORM, False)])
def test_a_loop_that_calls_transforms_itself_has_no_loader(call: Frame, loads: bool) -> None:
    assert location_of((OWN, call)).phase == "data"
    job = jobs.timeline([*jobs.process(TRAINER), *jobs.stacks(TRAINER, (OWN, call), (OWN,), times=40)])
    assert has_loader(job, {TRAINER}) is loads


def test_rows_of_tensors_are_told_from_datasets_of_the_jobs_own() -> None:
    assert of_code((OWN, LOADER, FETCH, ROWS))["dataset"] == "tensors"
    own = Frame("/home/me/train.py", "Images.__getitem__", 20)
    assert "dataset" not in of_code((OWN, LOADER, FETCH, SUBSET, own))


@pytest.mark.parametrize(
    ("threads", "backend"),
    [((), None), (("pt_gloo_runloop",), "gloo"), (("pt_gloo_runloop", "pt_nccl_watchdg"), "nccl")],
)
def test_the_backend_is_told_by_its_threads(threads: tuple[str, ...], backend: str | None) -> None:
    assert of_code((OWN,), threads=threads).get("backend") == backend


TORCH = f"{PACKAGES}/torch"
SHARD = Frame(f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_state.py", "FSDPState._pre_forward", 1)
DDP = Frame(f"{TORCH}/nn/parallel/distributed.py", "DistributedDataParallel.forward", 1)
SPEED = Frame(f"{PACKAGES}/deepspeed/runtime/engine.py", "DeepSpeedEngine.forward", 1)


@pytest.mark.parametrize(
    ("frames", "way"), [((DDP,), "ddp"), ((SHARD,), "fully_shard"), ((SPEED, DDP), "deepspeed"), ((), "no")]
)
def test_how_ranks_share_the_model_is_told_by_frames_of_libraries(frames: tuple[Frame, ...], way: str) -> None:
    assert of_code((OWN, *frames), (OWN,))["parallel"] == way


TENSOR_PARALLEL = Frame(f"{TORCH}/distributed/tensor/parallel/style.py", "RowwiseParallel._prepare_output_fn", 1)
MODULE = Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1)
BACKWARD = Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 1)
EXCHANGE = Frame(f"{TORCH}/distributed/distributed_c10d.py", "all_reduce", 1)


@pytest.mark.parametrize(
    ("stacks", "activations"),
    [
        ([(OWN, MODULE, TENSOR_PARALLEL), (OWN, MODULE)], "added up"),
        ([(OWN, MODULE, EXCHANGE), (OWN, BACKWARD, EXCHANGE)], "added up"),
        ([(OWN, MODULE, EXCHANGE), (OWN, BACKWARD, EXCHANGE), (OWN, EXCHANGE), (OWN, EXCHANGE)], "added up"),
        ([(OWN, MODULE), (OWN, EXCHANGE)], None),  # gradients, by hand
        ([(OWN, MODULE), (OWN, BACKWARD, EXCHANGE)], None),  # so they are in a hook
        ([(OWN, BACKWARD, MODULE, EXCHANGE)], None),  # a block that is computed anew shows nothing new
        ([(OWN, DDP, MODULE, EXCHANGE)], None),
    ],
)
def test_ranks_that_exchange_in_the_forward_pass_share_layers(
    stacks: list[tuple[Frame, ...]], activations: str | None
) -> None:
    assert of_code(*stacks).get("activations") == activations


def test_the_way_is_not_denied_after_few_looks() -> None:
    assert "parallel" not in of_code((OWN,), times=30)


@pytest.mark.parametrize(
    ("frame", "setting", "value"),
    [
        (Frame(f"{TORCH}/optim/adam.py", "_single_tensor_adam", 1), "optimizer", "single"),
        (Frame(f"{TORCH}/optim/adam.py", "_fused_adam", 1), "optimizer", "fused"),
        (Frame("/usr/lib/python3.11/logging/__init__.py", "StreamHandler.emit", 1), "logger", "yes"),
        (Frame("/usr/lib/python3.11/logging/handlers.py", "QueueHandler.prepare", 1), "logger", "in a thread"),
        (Frame("/home/me/logging/__init__.py", "emit", 1), "logger", None),
        (Frame("/usr/lib/python3.11/cProfile.py", "runctx", 1), "watched_by", "cProfile"),
        (Frame(f"{PACKAGES}/lightning/pytorch/loops/evaluation_loop.py", "run", 1), "evaluation_loop", "lightning"),
        (Frame(f"{PACKAGES}/datasets/arrow_dataset.py", "Dataset.__getitems__", 1), "dataset", "arrow"),
        (Frame(f"{PACKAGES}/pandas/core/indexing.py", "_iLocIndexer.__getitem__", 1), "dataset", "rows of a table"),
        (Frame(f"{PACKAGES}/polars/dataframe/frame.py", "DataFrame.row", 1), "dataset", "rows of a table"),
        (Frame(f"{PACKAGES}/polars/dataframe/frame.py", "DataFrame.join", 1), "dataset", None),
        (Frame(f"{PACKAGES}/gymnasium/core.py", "Wrapper.step", 1), "environments", "one by one"),
        (Frame(f"{PACKAGES}/gymnasium/vector/async_vector_env.py", "step", 1), "environments", "together"),
        (Frame(f"{PACKAGES}/transformers/trainer.py", "Trainer.training_step", 1), "loop", "transformers"),
        (Frame(f"{PACKAGES}/lightning/pytorch/loops/fit_loop.py", "run", 1), "loop", "lightning"),
        (Frame("/home/me/gymnasium/core.py", "Wrapper.step", 1), "environments", None),
        (Frame("/home/me/deepspeed/runtime/engine.py", "forward", 1), "parallel", "no"),
    ],
)
def test_what_a_job_uses_is_told_by_frames_of_libraries(frame: Frame, setting: str, value: str | None) -> None:
    assert of_code((OWN, frame), (OWN,)).get(setting) == value


def test_what_is_only_imported_is_not_used() -> None:
    importing = (OWN, Frame("<frozen importlib._bootstrap>", "_find_and_load", 1176))
    sharded = Frame(f"{PACKAGES}/torch/distributed/fsdp/_fully_shard/_fsdp_param.py", "<module>", 30)
    assert of_code((*importing, sharded), (OWN,))["parallel"] == "no"
    assert of_code((OWN, sharded), (OWN,))["parallel"] == "fully_shard"


@pytest.mark.parametrize(
    ("texts", "setting"),
    [
        (["torch.set_num_threads(2)"], "2"),
        (["torch.set_num_threads( 1 )", "torch.set_num_threads(4)"], "4"),
        (["torch.set_num_threads(2)", "torch.set_num_threads(args.threads)"], "yes"),
    ],
)
def test_the_number_of_threads_is_as_the_source_sets_it(texts: list[str], setting: str) -> None:
    calls = [
        SourceCall("/job/train.py", line, text, "set_num_threads", "main", None) for line, text in enumerate(texts)
    ]
    assert read_code_settings(jobs.timeline([*jobs.process(TRAINER), *calls]))["threads_set"] == setting


@pytest.mark.parametrize(("made", "update"), [(["AdamW", "Adam"], "Adam"), (["SGD"], "SGD"), (["SGD", "Adam"], None)])
def test_without_stacks_the_source_says_which_optimizer_it_is(made: list[str], update: str | None) -> None:
    calls = [SourceCall("/job/train.py", 3, f"{name}(model.parameters())", name, "main", None) for name in made]
    assert read_code_settings(jobs.timeline([*jobs.process(TRAINER), *calls])).get("update") == update


@pytest.mark.parametrize(("whole", "place"), [(False, "/job/train.py:3 main"), (None, None)])
def test_where_a_part_of_the_model_is_trained_is_told(whole: bool | None, place: str | None) -> None:
    call = SourceCall("/job/train.py", 3, "Adam(model.fc.parameters())", "Adam", "main", whole)
    assert read_code_settings(jobs.timeline([*jobs.process(TRAINER), call])).get("trains_part") == place


def test_where_every_text_is_padded_is_told() -> None:
    call = SourceCall("/job/data.py", 40, "ids = tok(text, padding='max_length')", "tok", "encode", None)
    assert read_code_settings(jobs.timeline([*jobs.process(TRAINER), call]))["pads_all"] == "/job/data.py:40 encode"


@pytest.mark.parametrize(
    ("text", "callee", "told"),
    [
        ("policy = MixedPrecisionPolicy(a, b)", "MixedPrecisionPolicy", True),
        ("model = FSDP(model, mixed_precision=MixedPrecision(reduce_dtype=t))", "MixedPrecision", True),
        ("m.register_comm_hook(s, h)", "register_comm_hook", True),
        ("trainer = Trainer(plugins=[MixedPrecision('bf16-mixed', 'cuda')])", "MixedPrecision", False),
    ],
)
def test_where_the_source_says_how_ranks_exchange_is_told(text: str, callee: str, told: bool) -> None:
    call = SourceCall("/job/train.py", 7, text, callee, "main", None)
    settings = read_code_settings(jobs.timeline([*jobs.process(TRAINER), call]))
    assert settings.get("exchange_policy") == ("/job/train.py:7 main" if told else None)


@pytest.mark.parametrize(
    ("updates", "held_back", "wrapped", "told"),
    [
        (43, False, True, "/job/train.py:40 main"),
        (43, True, True, None),  # the last of them exchanges
        (43, False, False, None),  # nobody exchanges
        (42, False, True, None),  # each pass is an update's
    ],
)
def test_passes_of_one_update_that_exchange_gradients_each_are_told(
    updates: int, held_back: bool, wrapped: bool, told: str | None
) -> None:
    ddp = Frame(f"{PACKAGES}/torch/nn/parallel/distributed.py", "DistributedDataParallel.forward", 1)
    model = (
        Frame("/job/train.py", "main", 41),
        *[ddp] * wrapped,
        Frame(f"{PACKAGES}/torch/nn/modules/linear.py", "f", 1),
    )
    backward = (Frame("/job/train.py", "main", 42), Frame(f"{PACKAGES}/torch/_tensor.py", "Tensor.backward", 1))
    update = (Frame("/job/train.py", "main", updates), Frame(f"{PACKAGES}/torch/optim/sgd.py", "SGD.step", 1))
    stacks = jobs.stacks(TRAINER, model, backward, update, times=300, every_s=0.01)
    loops = [SourceLoop("/job/train.py", 39, 43, carries=True), SourceLoop("/job/train.py", 40, 42, carries=True)]
    holds = [SourceCall("/job/train.py", 41, "model.no_sync()", "no_sync", "main", None)] * held_back
    job = jobs.timeline([*jobs.process(TRAINER), *stacks, *loops, *holds])
    assert read_code_settings(job).get("exchanges_again") == told


@pytest.mark.parametrize(
    ("updates", "told"),
    [
        ((45,), "/job/train.py:40 main"),
        ((42, 45), None),  # another optimizer's in each round
        ((47,), None),  # behind the loop: that is another way
    ],
)
def test_passes_that_a_remainder_gathers_into_updates_are_told(updates: tuple[int, ...], told: str | None) -> None:
    ddp = Frame(f"{PACKAGES}/torch/nn/parallel/distributed.py", "DistributedDataParallel.forward", 1)
    model = (Frame("/job/train.py", "main", 41), ddp, Frame(f"{PACKAGES}/torch/nn/modules/linear.py", "f", 1))
    backward = (Frame("/job/train.py", "main", 43), Frame(f"{PACKAGES}/torch/_tensor.py", "Tensor.backward", 1))
    step = Frame(f"{PACKAGES}/torch/optim/sgd.py", "SGD.step", 1)
    updating = [(Frame("/job/train.py", "main", line), step) for line in updates]
    stacks = jobs.stacks(TRAINER, model, backward, *updating, times=300, every_s=0.01)
    rounds = SourceRounds("/job/train.py", 45, 46, 40, 46, "(step + 1) % accumulate == 0")
    settings = read_code_settings(jobs.timeline([*jobs.process(TRAINER), *stacks, rounds]))
    assert settings.get("exchanges_again") == settings.get("accumulates_at") == told
    assert settings.get("updates_when") == (told and rounds.when)


def test_in_which_rounds_something_is_done_is_told() -> None:
    loop = Frame("/job/train.py", "main", 42)
    save = Frame(f"{TORCH}/serialization.py", "save", 1)
    below = (loop, Frame("/job/train.py", "keep", 90), save)
    stacks = jobs.stacks(TRAINER, below, (Frame("/job/train.py", "main", 50), save), below, times=300, every_s=0.01)
    often, seldom = (
        SourceRounds("/job/train.py", line, line + 1, 40, 60, when)
        for line, when in ((42, "n % 5 == 0"), (50, "n % 9"))
    )
    settings = read_code_settings(jobs.timeline([*jobs.process(TRAINER), *stacks, often, seldom]))
    assert settings["saves_when"] == "n % 5 == 0"
    assert "logs_when" not in settings
    settings = read_code_settings(jobs.timeline([*jobs.process(TRAINER), *stacks, seldom]))
    assert "saves_when" not in settings  # mostly not


def test_where_the_job_calls_for_its_evaluation_is_told() -> None:
    """Not the model's own line, at which it trains as well; nor what only a library's loop leads to."""
    train, net = "/job/train.py", Frame("/job/net.py", "Net.forward", 12)
    called = Frame(f"{TORCH}/nn/modules/module.py", "Module._call_impl", 1)
    model, backward, step = (
        (Frame(train, "main", line), *frames)
        for line, frames in (
            (41, (called, net)),
            (43, (Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 1),)),
            (44, (Frame(f"{TORCH}/optim/sgd.py", "SGD.step", 1),)),
        )
    )
    evaluating = (Frame(train, "main", 47), Frame(train, "evaluate", 27), called, net)
    library = f"{PACKAGES}/lightning/pytorch/loops/evaluation_loop.py"
    in_library = (Frame(train, "main", 41), Frame(library, "_EvaluationLoop.run", 1), called, net)
    for passes, told in ((evaluating, "/job/train.py:47 main"), (in_library, None)):
        stacks = jobs.stacks(TRAINER, model, backward, step, passes, times=300, every_s=0.01)
        settings = read_code_settings(jobs.timeline([*jobs.process(TRAINER), *stacks]))
        assert settings.get("evaluates_at") == told


@pytest.mark.parametrize(("line", "told"), [(40, "/job/train.py:40 main"), (41, None)])
def test_batches_that_are_made_of_what_the_loop_changes_are_told(line: int, told: str | None) -> None:
    model = Frame("/v/lib/python3.11/site-packages/torch/nn/modules/module.py", "Module._call_impl", 1789)
    draws = (Frame("/job/train.py", "main", 40), Frame("/job/replay.py", "Replay.sample", 9))
    stacks = jobs.stacks(TRAINER, draws, (Frame("/job/train.py", "main", 42), model))
    job = jobs.timeline([*jobs.process(TRAINER), *stacks, SourceState("/job/train.py", line, line)])
    assert read_code_settings(job).get("made_of_state") == told


@pytest.mark.parametrize("workers", [0, 1])
def test_a_pool_that_is_made_again_is_told_where_no_loader_starts_workers(workers: int) -> None:
    ends = Frame("/usr/lib/python3.11/concurrent/futures/process.py", "ProcessPoolExecutor.shutdown", 820)
    stacks = jobs.stacks(TRAINER, (Frame("/job/train.py", "main", 40), ends), (OWN,))
    loader = jobs.process(20, parent=TRAINER, forked=True) * workers
    worker = jobs.stacks(20, (Frame(f"{PACKAGES}/torch/utils/data/_utils/worker.py", "_worker_loop", 1),)) * workers
    settings = read_code_settings(jobs.timeline([*jobs.process(TRAINER), *stacks, *loader, *worker]))
    assert settings.get("pool_at") == (None if workers else "/job/train.py:40 main")


@pytest.mark.parametrize(
    ("loop", "updates", "told"),
    [
        (range(42, 50), True, "/job/train.py:40 main"),
        (range(42, 50), False, None),  # nothing is trained in the inner loop
        (range(45, 50), True, None),  # another loop, in which no optimizer steps
        ((), True, None),
    ],
)
def test_what_all_steps_of_a_pass_share_is_told(loop: Sequence[int], *, updates: bool, told: str | None) -> None:
    torch = "/v/lib/python3.11/site-packages/torch"
    model = Frame(f"{torch}/nn/modules/module.py", "Module._call_impl", 1789)
    step = Frame(f"{torch}/optim/adam.py", "Adam.step", 200)
    sorts = (Frame("/job/train.py", "main", 40), Frame("/job/data.py", "Texts.order", 9))
    steps = [(Frame("/job/train.py", "main", 43), model)]
    steps += [(Frame("/job/train.py", "main", 44), step)] if updates else []
    once = [SourceOnce("/job/train.py", 40, 40, loop[0], loop[-1])] if loop else []
    job = jobs.timeline([*jobs.process(TRAINER), *jobs.stacks(TRAINER, sorts, *steps), *once])
    assert read_code_settings(job).get("per_pass_at") == told


def test_where_a_loader_makes_most_of_the_batches_they_are_not_made_of_what_the_loop_changes() -> None:
    """A model is given weights in each round (``model.load_state_dict``) and trained by a call (``train(model)``)."""
    main = Frame("/job/train.py", "main", 40)
    model = Frame("/v/lib/python3.11/site-packages/torch/nn/modules/module.py", "Module._call_impl", 1789)
    fetch = Frame("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 700)
    above, loads = (main, Frame("/job/train.py", "train", 61)), (main, Frame("/job/train.py", "train", 60), fetch)
    stacks = jobs.stacks(TRAINER, above, loads, loads, (main, Frame("/job/train.py", "train", 62), model))
    job = jobs.timeline([*jobs.process(TRAINER), *stacks, SourceState("/job/train.py", 40, 40)])
    assert "made_of_state" not in read_code_settings(job)
