"""Advice fits the job: what is already so is not advised, and what stands in the way is named first."""

import re
from typing import Any

import pytest

from perfdoctor.reports.wording import worded_finding, worded_fixes
from perfdoctor.rules import find
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.rule import times_rarer
from tests.builders.cases import changes, finding, titles


@pytest.mark.parametrize(("whose", "name"), [("numbers", "traced_compiling"), ("trainer", "own_recompiling")])
def test_what_compiles_again_and_again_is_not_told_to_compile(whose: str, name: str) -> None:
    found = finding("cpu.python_overhead", **{whose: {name: 0.4}})  # type: ignore[arg-type]
    assert name in [evidence.name for evidence in found.evidence]
    assert titles(found) == ["Keep torch.compile from compiling again"]
    assert "dynamic=True" in changes(found)
    assert "Compile the model" in titles(finding("cpu.python_overhead", **{whose: {name: 0.1}}))  # type: ignore[arg-type]


def test_a_first_compilation_is_not_called_one_of_many() -> None:
    first = finding("cpu.python_overhead", trainer={"own_compiling": 0.45, "own_recompiling": 0.02})
    assert first.summary.startswith("Compiling the model (torch.compile) takes 50%")
    assert titles(first)[0] == "Look again once steps are under way"
    again = finding("cpu.python_overhead", trainer={"own_compiling": 0.45, "own_recompiling": 0.4})
    assert again.summary.startswith("Compiling the model again and again")


def test_what_watches_each_call_is_named_first() -> None:
    found = finding("cpu.python_overhead", settings={"watched_by": "cProfile"})
    assert titles(found)[0] == "Run without cProfile"


@pytest.mark.parametrize(("part", "told"), [(0.3, 1 / 0.64), (0.03, None)])
def test_a_trace_function_is_told_with_what_it_takes(part: float, told: float | None) -> None:
    found = finding("cpu.python_overhead", numbers={"tracing": part}, settings={"traced_by": "train.py:5 count"})
    [speedup] = [fix.predicted_speedup for fix in worded_fixes(found) if "trace function" in fix.title] or [None]
    assert speedup == (told and pytest.approx(told))


def test_environments_that_step_one_by_one_are_told_to_step_together() -> None:
    title, numbers = "Step several environments at the same time", {"interpreter_code": 0.8}
    alone: dict[str, str | float] = {"environments": "one by one"}
    assert titles(finding("cpu.python_overhead", numbers=numbers, settings=alone))[0] == title
    for settings in ({"environments": "together"}, {}):
        assert title not in titles(finding("cpu.python_overhead", numbers=numbers, settings=dict(settings)))


@pytest.mark.parametrize(
    ("torch", "gpu", "told"),
    [
        ("2.3.1", False, "foreach=True"),
        ("2.4.0", False, "fused=True"),
        ("2.3.1", True, "fused=True"),
        ("", False, "fused"),
    ],
)
def test_the_cpu_has_fused_optimizers_from_pytorch_2_4_on(torch: str, gpu: bool, told: str) -> None:
    settings: dict[str, str | float] = {"update": "Adam", "optimizer": "single", **({"on_gpu": "yes"} if gpu else {})}
    job = {"settings": settings, "trainer": {"own_updating": 0.3}, "optimizer": 0.4, "versions": {"torch": torch}}
    assert told in changes(finding("cpu.python_overhead", **job))


def test_what_goes_over_several_tensors_in_a_call_already_stays_so_before_pytorch_2_4() -> None:
    job = {"settings": {"update": "Adam", "optimizer": "multi"}, "optimizer": 0.4, "versions": {"torch": "2.3.1"}}
    assert "foreach" not in changes(finding("cpu.python_overhead", **job))


@pytest.mark.parametrize(("python", "told"), [("3.11", True), ("3.12", False)])
def test_models_are_compiled_under_pythons_that_their_pytorch_compiles_for(python: str, told: bool) -> None:
    found = finding("cpu.python_overhead", versions={"torch": "2.3.1", "python": python})
    assert ("model.compile()" in changes(found)) is told


def test_a_fused_optimizer_is_not_told_to_be_fused() -> None:
    title, adam = "Update all parameters in one call", {"update": "Adam"}
    for way, told in (("single", True), ("multi", True), ("fused", False)):
        found = finding("cpu.python_overhead", settings={"optimizer": way, **adam}, optimizer=0.4)
        assert (title in titles(found)) is told
    gpu = finding("cpu.kernel_launch", numbers={"gpus": 1.0}, settings={**adam}, optimizer=0.4)
    assert any("several kernels for each group" in fix.why for fix in gpu.fixes)


@pytest.mark.parametrize(
    ("update", "loop", "gpu", "told"),
    [
        ("Adam", "", False, "torch.optim.AdamW(..., fused=True)"),
        ("SGD", "", False, "torch.optim.SGD(..., fused=True)"),
        ("Adam", "transformers", False, "optim='adamw_torch_fused'"),
        ("SGD", "transformers", False, ""),
        ("", "", False, ""),
        ("", "", True, "torch.compile(optimizer.step)"),
        ("", "transformers", True, ""),
    ],
)
def test_an_optimizer_is_not_exchanged_for_another(update: str, loop: str, gpu: bool, told: str) -> None:
    """Only a few have a fused step; whoever trains with others would train otherwise."""
    settings: dict[str, str | float] = {"update": update, "loop": loop}
    settings = {name: value for name, value in settings.items() if value}
    cause, numbers = ("cpu.kernel_launch", {"gpus": 1.0}) if gpu else ("cpu.python_overhead", {})
    found = changes(finding(cause, numbers=numbers, settings=settings, optimizer=0.4))
    assert told in found
    assert ("fused" in found) is ("fused" in told)
    assert ("compile(optimizer" in found) is ("compile" in told)


def test_gradients_that_are_clipped_are_no_update() -> None:
    for clipping, told in ((0.0, True), (0.1, False)):
        clipped = {"own_clipping": clipping}
        found = finding("cpu.python_overhead", settings={"update": "Adam"}, optimizer=0.2, trainer=clipped)
        assert ("fused=True" in changes(found)) is told


def test_tracebacks_all_the_time_are_anomaly_detection() -> None:
    title = "Turn anomaly detection off"
    found = finding("cpu.python_overhead", below={"traceback": 0.1, "linecache": 0.05})
    assert (titles(found)[0], found.title) == (title, "Autograd's anomaly detection")
    assert title not in titles(finding("cpu.python_overhead", below={"traceback": 0.01, "torch": 0.9}))


def test_a_profiler_that_is_left_on_is_named_first_and_a_short_profile_is_not() -> None:
    title = "Let torch.profiler record a few steps only"
    left_on = finding("cpu.python_overhead", trainer={"own_profiling": 0.4})
    assert titles(left_on)[0] == title
    assert left_on.predicted_speedup == pytest.approx(1 / 0.6)
    assert title not in titles(finding("cpu.python_overhead", trainer={"own_profiling": 0.04}))


def test_launch_blocking_comes_first_where_it_is_set() -> None:
    for cause in ("cpu.synchronization", "cpu.kernel_launch", "gpu.host_transfer"):
        assert titles(finding(cause, settings={"env.CUDA_LAUNCH_BLOCKING": "1"}))[0] == "Unset CUDA_LAUNCH_BLOCKING"
        for value in ("0", ""):
            assert "CUDA_LAUNCH_BLOCKING" not in str(finding(cause, settings={"env.CUDA_LAUNCH_BLOCKING": value}))
        assert "CUDA_LAUNCH_BLOCKING" not in str(finding(cause))


def test_debug_switches_are_named() -> None:
    found = finding(
        "cpu.python_overhead",
        settings={"env.TORCH_DISTRIBUTED_DEBUG": "DETAIL", "env.PYTHONTRACEMALLOC": "1"},
    )
    assert titles(found)[:2] == ["Unset TORCH_DISTRIBUTED_DEBUG", "Unset PYTHONTRACEMALLOC"]
    harmless = finding("cpu.python_overhead", settings={"env.TORCH_DISTRIBUTED_DEBUG": "OFF"})
    assert not any(title.startswith("Unset") for title in titles(harmless))


@pytest.mark.parametrize(("part", "told"), [(0.68, False), (0.3, True)])
def test_a_model_that_is_mostly_recurrent_layers_is_not_compiled(part: float, told: bool) -> None:
    found = finding("cpu.python_overhead", settings={"recurrent": "yes"}, numbers={"in_recurrent": part})
    assert ("Compile the model" in titles(found)) is told


@pytest.mark.parametrize("recurrent", [False, True])
def test_recurrent_layers_are_not_compiled(recurrent: bool) -> None:
    settings: dict[str, str | float] = {"recurrent": "yes"} if recurrent else {}
    found = finding("cpu.python_overhead", settings={**settings, "gpus": 1})
    order = [titles(found).index(title) for title in ("Compile the model", "Use a larger batch")]
    assert (order == sorted(order)) != recurrent
    assert any("LSTM, GRU, RNN" in fix.why for fix in found.fixes) == recurrent


@pytest.mark.parametrize(
    ("gpus", "optimizer", "beside", "compiled_first"),
    [(1, 0.1, 0.1, True), (1, 0.6, 0.1, False), (1, 0.1, 0.4, False), (0, 0.1, 0.1, False)],
)
def test_a_model_is_compiled_first_where_its_passes_take_most_of_it_on_a_gpu(
    gpus: int, optimizer: float, beside: float, compiled_first: bool
) -> None:
    found = finding(
        "cpu.python_overhead",
        settings={"gpus": gpus},
        trainer={"own_beside": beside},
        afterwards=(("train.py:9 main", beside),),
        forward=0.2,
        backward=0.2,
        optimizer=optimizer,
    )
    order = titles(found)
    assert (order.index("Compile the model") < order.index("Use a larger batch")) == compiled_first


def test_compile_is_not_advised_while_it_is_switched_off() -> None:
    off = finding("cpu.python_overhead", settings={"env.TORCHDYNAMO_DISABLE": "1"})
    assert "Compile the model" not in titles(off)
    assert "Unset TORCHDYNAMO_DISABLE" in titles(off)
    assert "Compile the model" in titles(finding("cpu.python_overhead"))


def test_the_optimizer_is_named_only_if_it_is_large() -> None:
    adam: dict[str, str | float] = {"update": "Adam"}
    assert "fused=True" in changes(finding("cpu.python_overhead", settings=adam, optimizer=0.4))
    assert "fused=True" not in changes(finding("cpu.python_overhead", settings=adam, optimizer=0.05))


def test_spawned_workers_get_a_fork_server() -> None:
    assert "forkserver" in changes(finding("cpu.worker_startup", settings={"start_method": "spawn"}))
    assert "forkserver" not in changes(finding("cpu.worker_startup", settings={"start_method": "fork"}))


def test_idle_workers_are_not_multiplied() -> None:
    found = finding("cpu.data_transfer", numbers={"worker_busy": 0.1}, workers=4, settings={"workers": 4.0})
    assert "more of them will not help" in found.fixes[0].why
    assert "in_order=False" in changes(found)
    busy = finding("cpu.data_transfer", numbers={"worker_busy": 0.95}, workers=4)
    assert "in_order=False" not in changes(busy)


def test_small_reads_and_mapped_files_are_told_apart() -> None:
    small = finding(
        "io.storage_read", numbers={"bytes_per_read": 4096.0, "read_from_storage": 5.0, "read_by_calls": 5.0}
    )
    assert "Pack samples into larger files" in titles(small)
    mapped = finding(
        "io.storage_read",
        numbers={
            "bytes_per_read": 4096.0,
            "major_faults": 1465.0,
            "read_from_storage": 30.0,
            "read_by_calls": 0.1,
        },
    )
    assert "Read mapped files in larger pieces" in titles(mapped)
    assert "Pack samples into larger files" not in titles(mapped)
    large = finding("io.storage_read", numbers={"bytes_per_read": 1e6})
    assert "Pack samples into larger files" not in titles(large)


def test_a_network_file_system_is_named_with_its_type() -> None:
    settings: dict[str, str | float] = {
        "mount./": "ext4",
        "mount./data": "nfs4 network",
        "mount./data/fast": "ext4",
    }
    remote = finding("io.storage_read", settings=settings, path="/data/train/a.bin")
    assert any("/data/train/a.bin is on a network file system (nfs4)" in fix.why for fix in remote.fixes)
    for path in ("/data/fast/a.bin", "/database/a.bin"):
        local = finding("io.storage_read", settings=settings, path=path)
        assert "Copy the data to local storage before training" not in titles(local)


def test_shell_commands_quote_strange_paths() -> None:
    found = finding("io.storage_read", settings={"mount./": "nfs network"}, path="/data/a b; rm -rf $HOME/x.bin")
    assert "rsync -a '/data/a b; rm -rf $HOME' " in changes(found)


def test_distributed_jobs_save_together() -> None:
    assert "async_save" in changes(finding("io.checkpoint_write", ranks=2, saving=0.5))
    assert "async_save" not in changes(finding("io.checkpoint_write", ranks=1, saving=0.5))


def test_what_one_rank_saves_alone_is_saved_by_nobody_else() -> None:
    """A collective save inside of ``if rank == 0`` would wait for the others for ever."""
    alone = tuple(Trainer(rank, 100 + rank, {}, {"saving": 0.5 * (not rank)}, {}, (), 0) for rank in range(2))
    found, _ = find(Case({"io.checkpoint_write": 0.6, "cpu.model_compute": 0.4}, alone, {}))
    text = changes(worded_finding(found[0]))
    assert "async_save" not in text
    assert "saver.submit" in text


def test_mapped_files_with_read_ahead_are_recognised() -> None:
    """As measured: 149 MB/s from storage, next to nothing by read calls, 22 major faults each second."""
    found = finding(
        "io.storage_read",
        numbers={
            "bytes_per_read": 26.6,
            "major_faults": 21.8,
            "read_from_storage": 149.0,
            "read_by_calls": 0.003,
        },
    )
    assert "Read mapped files in larger pieces" in titles(found)
    assert "Pack samples into larger files" not in titles(found)


def test_a_page_cache_that_is_too_small_is_named_only_if_it_matters() -> None:
    title = "Train on a part of the data per host"
    for refaults, named in ((20_000.0, True), (0.57, False), (0.0, False)):
        found = finding("io.storage_read", numbers={"refaults": refaults, "read_from_storage": 100.0})
        assert (title in titles(found)) is named
        # What was dropped again would be so once more.
        assert ("Keep the data in memory, if it fits" in titles(found)) is not named


def test_own_python_is_not_told_to_compile() -> None:
    lines = ("a.py:3 Env.obs", "a.py:9 log")
    own = finding("cpu.python_overhead", numbers={"interpreter_code": 0.8}, lines=lines)
    assert titles(own) == ["Make a.py:3 Env.obs and a.py:9 log cheaper"]
    assert "Python code in the training step" in own.summary
    assert not {"compile", "DataLoader"} & set(changes(own).replace("(", " ").split())
    mixed = finding("cpu.python_overhead", numbers={"interpreter_code": 0.6}, lines=lines, below={"torch": 0.5})
    assert titles(mixed)[1] == "Use fewer, larger operations at a.py:3 Env.obs"
    torchs = finding("cpu.python_overhead", numbers={"interpreter_code": 0.6}, lines=lines, below={"torch": 0.9})
    assert "Compile the model" in titles(torchs)
    dispatch = finding("cpu.python_overhead", numbers={"interpreter_code": 0.2}, lines=lines)
    assert titles(dispatch)[0] == "Use fewer, larger operations at a.py:3 Env.obs"
    assert titles(dispatch)[-1] == "Compile the model"


def test_what_libraries_do_beside_the_model_is_done_more_rarely() -> None:
    numbers = {"library_code": 0.7, "interpreter_code": 0.6}
    found = finding("cpu.python_overhead", numbers=numbers, lines=("a.py:3 dump",), below={"PIL": 0.8, "": 0.2})
    assert titles(found) == ["Do less, or do it more rarely, at a.py:3 dump"]
    assert found.summary.startswith("Work of other libraries (PIL) beside the model takes 50%")
    known = finding("cpu.python_overhead", numbers=numbers, lines=("a.py:3 dump",), outside=(("a.py:8 near", 0.2),))
    assert titles(known) == ["Do less, or do it more rarely, at a.py:8 near"]
    assert known.predicted_speedup == pytest.approx(1 / 0.8)
    own = finding("cpu.python_overhead", numbers={**numbers, "library_code": 0.3}, lines=("a.py:3 dump",))
    assert titles(own) == ["Make a.py:3 dump cheaper"]


@pytest.mark.parametrize(
    ("outside", "others"),
    [(0.3, []), (0.1, ["Use fewer, larger operations at a.py:3 Net.forward", "Compile the model"])],
)
def test_a_function_that_runs_without_torch_gets_its_own_time_and_no_more(outside: float, others: list[str]) -> None:
    """Of half the time in interpreter and dispatch, the rest may be the interpreter at torch's modules."""
    found = finding(
        "cpu.python_overhead", numbers={"interpreter_code": 0.7}, lines=("a.py:3 Net.forward",),
        outside=(("a.py:8 distance", outside),),
    )  # fmt: skip
    (own,) = (fix for fix in found.fixes if fix.title == "Make a.py:8 distance cheaper")
    assert own.predicted_speedup == pytest.approx(1 / (1 - outside))
    assert f"{100 * outside:.0f}% of the time" in own.why
    assert {*others} <= {*titles(found)}
    assert bool(others) is ("Compile the model" in titles(found))


@pytest.mark.parametrize(
    ("target", "title"),
    [
        ("pipe:[1]", "Let whoever reads the log keep up"),
        ("socket:tcp", "Let whoever reads the log keep up"),
        ("file:/data/log.csv", "Do not flush every line to the disk"),
    ],
)
def test_a_log_that_another_program_reads_is_not_flushed_less(target: str, title: str) -> None:
    assert title in titles(finding("io.log_write", target=target))


def test_pictures_that_are_drawn_wait_for_no_flush() -> None:
    found = titles(finding("io.log_write", target=""))
    assert "Write from another thread" in found
    assert "Do not flush every line to the disk" not in found


@pytest.mark.parametrize(
    ("cause", "number", "option"),
    [
        ("io.storage_read", "read_limit_used", "IOReadBandwidthMax"),
        ("io.storage_read", "reads_limit_used", "IOReadIOPSMax"),
        ("io.checkpoint_write", "written_limit_used", "IOWriteBandwidthMax"),
        ("io.log_write", "writes_limit_used", "IOWriteIOPSMax"),
    ],
)
def test_a_control_groups_limit_is_named_where_it_is_reached(cause: str, number: str, option: str) -> None:
    reached = finding(cause, target="file:/data/a", numbers={number: 0.98, "device_busy": 0.5})
    assert option in changes(reached)
    free = finding(cause, target="file:/data/a", numbers={number: 0.3, "device_busy": 0.5})
    assert option not in changes(free)


def test_a_limit_for_writing_is_reached_while_the_trainer_writes() -> None:
    """Saving took half of the time, and half of what the group may write in all of it."""
    saving = finding("io.checkpoint_write", share=0.5, target="file:/data/a", numbers={"written_limit_used": 0.5})
    assert "IOWriteBandwidthMax" in changes(saving)
    reading = finding("io.storage_read", share=0.5, target="file:/data/a", numbers={"read_limit_used": 0.5})
    assert "IOReadBandwidthMax" not in changes(reading)


@pytest.mark.parametrize(("part", "variable", "told"), [(0.2, "", True), (0.2, "25", False), (0.01, "", False)])
def test_tracemalloc_is_taken_away_where_it_takes_time(part: float, variable: str, told: bool) -> None:
    """Where a variable has set it, that is to be unset."""
    settings: dict[str, str | float] = {"env.PYTHONTRACEMALLOC": variable} if variable else {}
    numbers = {"tracing_memory": part, "trainer_running": 1.0}
    found = titles(finding("cpu.python_overhead", numbers=numbers, settings=settings))
    assert ("Run without tracemalloc" in found) is told
    assert ("Unset PYTHONTRACEMALLOC" in found) is bool(variable)


@pytest.mark.parametrize("cause", ["cpu.python_overhead", "cpu.input_preprocessing"])
def test_what_makes_all_python_slow_is_named_wherever_python_works(cause: str) -> None:
    for settings, title in (
        ({"watched_by": "coverage"}, "Run without coverage"),
        ({"env.PYTHONMALLOC": "malloc_debug"}, "Unset PYTHONMALLOC"),
        ({"env.PYTHONDEVMODE": "1"}, "Unset PYTHONDEVMODE"),
    ):
        assert titles(finding(cause, settings=dict(settings)))[0] == title
    assert "Unset PYTHONMALLOC" not in titles(finding(cause, settings={"env.PYTHONMALLOC": "malloc"}))


def test_a_program_that_traces_the_job_is_told_with_what_it_takes() -> None:
    found = finding("cpu.input_preprocessing", numbers={"stopped": 0.4}, settings={"stopped_by": "strace"})
    assert titles(found)[0] == "Run without strace"
    assert found.fixes[0].predicted_speedup == pytest.approx(1 / (1 - 1.5 * 0.4))


def test_anomaly_detection_slows_down_no_input() -> None:
    below = {"traceback": 0.5}
    assert "Turn anomaly detection off" in titles(finding("cpu.python_overhead", below=below))
    assert "Turn anomaly detection off" not in titles(finding("cpu.input_preprocessing", below=below))


def test_memory_that_is_filled_at_no_known_line_is_told_all_the_same() -> None:
    numbers = {"filling": 0.3, "trainer_running": 1.0}
    assert "Fill less memory" in titles(finding("cpu.model_compute", numbers=numbers))


def test_metrics_in_python_are_told_to_be_computed_more_rarely() -> None:
    """They lead to no gradients, so what they take can be left out of most steps; what leads to some can be cheaper."""
    line, numbers = "train.py:7 distance", {"interpreter_code": 0.9}
    here = ((line, 0.4),)
    rarely = titles(finding("cpu.python_overhead", numbers=numbers, outside=here, afterwards=here))
    assert f"Do what {line} does more rarely" in rarely
    assert not any(title.endswith("cheaper") for title in rarely)
    assert f"Make {line} cheaper" in titles(finding("cpu.python_overhead", numbers=numbers, outside=here))


@pytest.mark.parametrize(
    ("settings", "title"),
    [
        (
            {"indexed_at": "net.py:8 forward"},
            "Take all parts of a tensor at once, and not one by one at net.py:8 forward",
        ),
        ({}, "Take all parts of a tensor at once, and not one by one"),
        ({"embeddings": "yes"}, "Update only the rows of embedding tables that a batch touches"),
    ],
)
def test_gradients_of_zeros_are_of_parts_or_of_tables(settings: dict[str, str | float], title: str) -> None:
    numbers = {"gradients_of_zeros": 0.4, "trainer_running": 1.0}
    found = finding("cpu.model_compute", numbers=numbers, settings={**settings})
    assert title in titles(found)
    others = ("Take all parts", "Update only the rows")
    assert sum(one.startswith(others) for one in titles(found)) == 1


@pytest.mark.parametrize(("part", "told"), [(0.3, True), (0.02, False)])
def test_memory_that_is_filled_is_told_at_its_line(part: float, told: bool) -> None:
    numbers, settings = {"filling": part, "trainer_running": 1.0}, {"filled_at": "net.py:4 forward"}
    assert (
        "Fill less memory at net.py:4 forward"
        in titles(finding("cpu.model_compute", numbers=numbers, settings=dict(settings)))
    ) is told


@pytest.mark.parametrize("cause", ["cpu.python_overhead", "cpu.kernel_launch"])
def test_a_model_that_is_compiled_in_part_is_told_to_be_compiled_whole(cause: str) -> None:
    found = finding(cause, numbers={"uncompiled": 0.3}, settings={"uncompiled_at": "net.py:7 forward"})
    assert "Let torch.compile take the whole model" in titles(found)
    assert "Compile the model" not in titles(found)


@pytest.mark.parametrize(
    ("calls", "settings", "told"),
    [
        ({"PIL open": 0.7, "PIL Image.tobytes": 0.2}, {"logger": "yes"}, True),
        ({"logging Logger.info": 0.9}, {"logger": "yes"}, False),
        ({"PIL open": 0.3, "logging Logger.info": 0.7}, {"logger": "yes"}, False),
        ({"PIL open": 0.9}, {}, False),
        ({"transformers Trainer.train": 0.9}, {"logger": "yes", "loop": "transformers"}, False),
    ],
)
def test_a_library_that_logs_by_itself_is_told_to_be_quiet(
    calls: dict[str, float], settings: dict[str, str | float], told: bool
) -> None:
    """Its records are made below a call for something else, and no call of the job's own can be left out."""
    found = finding("io.log_write", calls=calls, settings=settings)
    assert (titles(found)[0] == "Do not log what PIL notes down for debugging") is told
    assert any(title.startswith("Log ") for title in titles(found)) is not told


def test_blocks_of_transformers_are_checkpointed_by_its_arguments() -> None:
    numbers = {"own_recomputing": 0.3}
    found = finding("cpu.model_compute", share=0.9, trainer=numbers, settings={"loop": "transformers"})
    assert "TrainingArguments(..., gradient_checkpointing=False)" in changes(found)
    assert "use_reentrant=False" in changes(finding("cpu.model_compute", share=0.9, trainer=numbers))


def test_a_thread_of_a_library_that_takes_the_gil_is_switched_off() -> None:
    line = "/v/lib/python3.11/site-packages/transformers/trainer_utils.py:480 TrainerMemoryTracker.peak_monitor_func"
    assert titles(finding("cpu.gil_contention", lines=(line,))) == [
        "Train without the memory metrics of transformers' Trainer"
    ]
    own = finding("cpu.gil_contention", lines=("/job/a.py:4 poll",))
    assert titles(own)[0] == "Move the work at /job/a.py:4 poll into a process of its own"


def test_a_queue_for_loggers_is_for_jobs_that_have_one() -> None:
    for settings, told in (({"logger": "yes"}, "QueueListener"), ({}, "writer.submit(log, record)")):
        assert told in changes(finding("io.log_write", settings=dict(settings)))
    assert "Write from another thread" not in titles(finding("io.log_write", settings={"logger": "in a thread"}))


def test_no_dataset_is_named_where_there_is_none() -> None:
    for loader, what in (("no", "what prepares the input"), ("yes", "the dataset's transforms")):
        found = finding("cpu.input_preprocessing", settings={"loader": loader})
        assert any(title.startswith(f"Make {what} cheaper") for title in titles(found))


def test_no_loader_is_advised_to_a_job_without_one() -> None:
    assert "DataLoader" not in changes(finding("cpu.python_overhead", settings={"loader": "no"}))
    assert "DataLoader" in changes(finding("cpu.python_overhead", settings={"loader": "yes"}))


def test_a_small_share_gets_one_piece_of_advice() -> None:
    assert len(finding("cpu.python_overhead", share=0.09).fixes) == 1
    assert len(finding("cpu.python_overhead", share=0.12).fixes) > 1


def test_decoding_is_advised_only_where_images_are_decoded() -> None:
    assert "draft" in changes(finding("cpu.input_preprocessing", below={"PIL": 0.4, "": 0.6}))
    assert "draft" not in changes(finding("cpu.input_preprocessing", below={"re": 0.4, "": 0.6}))
    assert "image" not in changes(finding("cpu.data_transfer"))


def test_rows_of_tensors_need_no_loader() -> None:
    title = "Take batches out of the tensors directly"
    tensors: dict[str, str | float] = {"dataset": "tensors"}
    assert title in titles(finding("cpu.data_transfer", settings=tensors))
    assert title in titles(finding("cpu.input_preprocessing", settings=tensors, below={"torch": 0.9, "": 0.1}))
    assert title not in titles(finding("cpu.input_preprocessing", settings=tensors, below={"torch": 0.1, "": 0.9}))
    assert title not in titles(finding("cpu.data_transfer"))


def test_what_is_saved_in_memory_is_not_told_to_use_faster_storage() -> None:
    title = "Save to faster storage first"
    settings: dict[str, str | float] = {"mount./": "ext4", "mount./dev/shm": "tmpfs"}
    assert title in titles(finding("io.checkpoint_write", settings=settings, path="/out/a.pt"))
    assert title not in titles(finding("io.checkpoint_write", settings=settings, path="/dev/shm/a.pt"))


@pytest.mark.parametrize(
    ("call", "told"), [("numpy savez_compressed", True), ("numpy savez", False), ("gzip GzipFile.write", True)]
)
def test_what_packs_arrays_is_told_not_to(call: str, told: bool) -> None:
    cause = "io.checkpoint_write"
    trainers = (Trainer(0, 100, {}, {}, {}, (), 0),)
    case = Case({cause: 0.4, "cpu.model_compute": 0.6}, trainers, {}, library_calls={cause: ((call, 0.9),)})
    found = next(one for one in find(case)[0] if one.cause == cause)
    assert ("Save without compressing" in titles(worded_finding(found))) == told


def test_a_job_without_workers_is_told_of_no_copies_in_workers() -> None:
    assert any("each worker" in fix.why for fix in finding("io.swap", workers=4).fixes)
    assert not any("worker" in fix.why + fix.title for fix in finding("io.swap").fixes)


def test_loops_of_libraries_are_told_by_their_own_arguments() -> None:
    numbers = {"gpus": 1.0}
    for loop, accumulates, halves in (
        ("transformers", "gradient_accumulation_steps=4", "bf16=True"),
        ("lightning", "accumulate_grad_batches=4", "precision='bf16-mixed'"),
    ):
        settings: dict[str, str | float] = {"loop": loop, "parallel": "ddp", "compute_capability": 9.0}
        exchange = finding("communication.bandwidth", settings=settings, numbers=numbers, ranks=2)
        assert accumulates in changes(exchange)
        assert "no_sync" not in changes(exchange)
        assert halves in changes(finding("gpu.no_tensor_cores", settings=settings, numbers=numbers))


def test_trainers_that_share_a_lock_are_told_to_hold_it_for_the_update_only() -> None:
    assert titles(finding("cpu.lock_contention", ranks=2))[0] == "Take the lock for the update only"
    assert titles(finding("cpu.lock_contention", ranks=2, workers=2))[0].startswith("Give every worker its own")


@pytest.mark.parametrize(
    ("loop", "rarer", "part", "larger"),
    [
        ("", "next(turns) % {} == 0", "Subset(held_out, range(0, len(held_out), {}))", "batch_size=2 * batch_size"),
        ("lightning", "check_val_every_n_epoch={}", "limit_val_batches=0.0", "batch_size=2 * batch_size"),
        (
            "transformers", "eval_steps={} * eval_steps", "eval_dataset.select(range(0, len(eval_dataset), {}))",
            "batch_size=2 * batch_size",
        ),
    ],
)  # fmt: skip
def test_an_evaluation_is_changed_where_its_loop_takes_it(loop: str, rarer: str, part: str, larger: str) -> None:
    settings: dict[str, str | float] = {"loop": loop, "evaluation_loop": loop} if loop else {}
    code, times = changes(finding("cpu.evaluation", share=0.36, settings=settings)), times_rarer(0.36)
    assert [text.format(times) for text in (rarer, part, larger) if text.format(times) not in code] == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "/job/net.py:12 Net.forward"),
        ({"evaluates_at": "/job/train.py:47 main"}, "/job/train.py:47 main"),
        ({"evaluation_loop": "lightning"}, None),
    ],
)
def test_an_evaluation_is_named_by_the_line_that_calls_for_it(settings: dict[str, Any], told: str | None) -> None:
    """In a library's loop nothing of the job's own does, and the model's line is the one of its training as well."""
    why = worded_fixes(finding("cpu.evaluation", lines=("/job/net.py:12 Net.forward",), settings=settings))[0].why
    assert (f"These passes at {told} change" if told else "These passes change") in why


def test_what_runs_compiled_is_not_told_to_be_compiled() -> None:
    for compiled in (True, False):
        settings: dict[str, str | float] = {"compiled": "yes"} if compiled else {}
        assert ("Compile the model" in titles(finding("cpu.python_overhead", settings=settings))) is not compiled


@pytest.mark.parametrize("loop", ["lightning", "transformers"])
def test_what_a_callback_evaluates_no_argument_of_the_library_changes(loop: str) -> None:
    code = changes(finding("cpu.evaluation", share=0.36, settings={"loop": loop}))
    assert "evaluate()" in code
    assert not re.search("check_val|limit_val|eval_steps|eval_dataset", code)
