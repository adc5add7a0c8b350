"""Advice fits the job: what is already so is not advised, and what stands in the way is named first."""

from typing import Any

import pytest

from perfdoctor.diagnosis import Evidence, Finding
from perfdoctor.facts import Facts, Trainer
from perfdoctor.rules import find


def finding(
    cause: str,
    *,
    numbers: dict[str, float] | None = None,
    settings: dict[str, str | float] | None = None,
    workers: int = 0,
    ranks: int = 1,
    path: str = "",
    share: float = 0.5,
    lines: tuple[str, ...] = (),
    below: dict[str, float] | None = None,
    **phases: float,
) -> Finding:
    units = {"neighbour_cores": "cores", "bytes_per_read": "bytes", "major_faults": "/s"}
    measured = {name: Evidence(name, value, units.get(name, ""), "test") for name, value in (numbers or {}).items()}
    trainers = tuple(Trainer(rank, 100 + rank, {}, phases, {}, (), workers) for rank in range(ranks))
    paths = {cause: ((f"file:{path}", 1.0),)} if path else {}
    places = {cause: tuple((line, 1 / len(lines)) for line in lines)}
    facts = Facts(
        {cause: share, "cpu.model_compute": 1 - share}, trainers, {}, measured, settings or {},
        paths=paths, lines=places, python_lines=places, below={cause: below or {}},
    )  # fmt: skip
    found, broken = find(facts)
    assert not broken
    return next(found for found in found if found.cause == cause)


def titles(found: Finding) -> list[str]:
    return [fix.title for fix in found.fixes]


def changes(found: Finding) -> str:
    return "\n".join(fix.change for fix in found.fixes)


@pytest.mark.parametrize("name", ["traced_compiling", "own_compiling.100"])
def test_what_compiles_again_and_again_is_not_told_to_compile(name: str) -> None:
    found = finding("cpu.python_overhead", numbers={name: 0.4})
    assert titles(found) == ["Keep torch.compile from compiling again"]
    assert "mark_dynamic" in changes(found)
    assert "Compile the model" in titles(finding("cpu.python_overhead", numbers={name: 0.1}))


def test_a_narrow_mask_is_widened_and_its_gain_counts_the_hosts_cores() -> None:
    settings: dict[str, str | float] = {"cores": 1.0, "affinity_cores": 1.0, "host_cores": 4.0}
    numbers = {"job_cores": 1.0, "host_cores_busy": 1.1, "runnable_threads": 2.0}
    found = finding("cpu.contention", numbers=numbers, settings=settings, workers=2)
    assert titles(found)[0] == "Let the job use more cores"
    assert found.predicted_speedup == pytest.approx(2.0)
    full = finding("cpu.contention", numbers={**numbers, "host_cores_busy": 3.9}, settings=settings, workers=2)
    assert "Let the job use more cores" not in titles(full)
    assert full.predicted_speedup == pytest.approx(1.0)


def test_tracebacks_all_the_time_are_anomaly_detection() -> None:
    title = "Turn anomaly detection off"
    assert titles(finding("cpu.python_overhead", below={"traceback": 0.1, "linecache": 0.05}))[0] == title
    assert title not in titles(finding("cpu.python_overhead", below={"traceback": 0.01, "torch": 0.9}))


def test_own_threads_are_fitted_to_the_cores() -> None:
    found = finding(
        "cpu.contention", numbers={"runnable_threads": 40.0, "job_cores": 8.0, "neighbour_cores": 0.0},
        settings={"cores": 8.0}, workers=3,
    )  # fmt: skip
    assert titles(found)[0] == "Use 2 compute threads per process"
    assert "OMP_NUM_THREADS=2" in changes(found)
    assert "the job has 40 threads for 8 cores at a time" in found.summary


def test_threads_that_fit_already_are_left_alone() -> None:
    found = finding(
        "cpu.contention", numbers={"runnable_threads": 40.0, "job_cores": 8.0},
        settings={"cores": 8.0, "env.OMP_NUM_THREADS": "2"}, workers=3,
    )  # fmt: skip
    assert not any("compute thread" in title for title in titles(found))


def test_neighbours_are_blamed_when_the_job_itself_fits() -> None:
    found = finding(
        "cpu.contention", numbers={"runnable_threads": 2.0, "job_cores": 1.0, "neighbour_cores": 2.0},
        settings={"cores": 2.0, "host_cores": 2.0},
    )  # fmt: skip
    assert titles(found)[0] == "Keep other processes off these cores"
    assert "processes outside the job keep 2 cores busy" in found.summary
    assert not any("compute thread" in title for title in titles(found))


def test_what_ddp_exchanges_is_not_told_to_use_ddp() -> None:
    cause = "communication.latency"
    settings: dict[str, str | float] = {"ddp": "yes", "backend": "gloo"}
    ddps = titles(finding(cause, settings=settings, ranks=2, backward=0.8))
    assert ddps[0] == "Exchange gradients every few steps"
    assert "Send many small tensors as one" not in ddps
    by_hand: dict[str, Any] = {"gradient sync": 0.5}
    own = titles(finding(cause, settings=settings, ranks=2, backward=0.3, **by_hand))
    assert own[0] == "Send many small tensors as one"
    for found in (ddps, own):
        assert "Leave the gradients to DistributedDataParallel" not in found
    assert "Leave the gradients to DistributedDataParallel" in titles(finding(cause, settings={"ddp": "no"}, ranks=2))


@pytest.mark.parametrize(
    ("share", "neighbours", "threads", "times"),
    [(0.95, 1.4, 2.0, "6 times"), (0.95, 1.4, 1.0, ""), (0.5, 1.0, 2.0, ""), (0.9, 0.1, 2.0, "")],
)
def test_a_pool_that_stands_still_beside_neighbours_is_made_smaller(
    share: float, neighbours: float, threads: float, times: str
) -> None:
    numbers = {"runnable_threads": threads, "job_cores": 0.6, "neighbour_cores": neighbours}
    found = finding("cpu.contention", numbers=numbers, settings={"cores": 2.0, "host_cores": 2.0}, share=share)
    smaller = [fix for fix in found.fixes if fix.title == "While they run, use 1 compute thread"]
    assert [times in fix.why for fix in smaller] == ([True] if times else [])


def test_a_narrow_affinity_is_named_only_if_the_host_has_idle_cores() -> None:
    settings: dict[str, str | float] = {"cores": 1.0, "affinity_cores": 1.0, "host_cores": 8.0}
    idle = finding("cpu.contention", numbers={"host_cores_busy": 1.0}, settings=settings)
    assert titles(idle)[0] == "Let the job use more cores"
    assert "taskset" in changes(idle)
    for numbers in ({"host_cores_busy": 7.9}, {}):
        assert "Let the job use more cores" not in titles(finding("cpu.contention", numbers=numbers, settings=settings))


def test_workers_beyond_the_cores_are_too_many() -> None:
    found = finding("cpu.contention", settings={"cores": 4.0}, workers=16)
    assert "Use 3 loader workers per trainer" in titles(found)
    assert not any(
        "loader worker" in title for title in titles(finding("cpu.contention", settings={"cores": 32.0}, workers=16))
    )


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


def test_compile_is_not_advised_while_it_is_switched_off() -> None:
    off = finding("cpu.python_overhead", settings={"env.TORCHDYNAMO_DISABLE": "1"})
    assert "Compile the model" not in titles(off)
    assert "Unset TORCHDYNAMO_DISABLE" in titles(off)
    assert "Compile the model" in titles(finding("cpu.python_overhead"))


def test_the_optimizer_is_named_only_if_it_is_large() -> None:
    assert "fused=True" in changes(finding("cpu.python_overhead", optimizer=0.4))
    assert "fused=True" not in changes(finding("cpu.python_overhead", optimizer=0.05))


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


def test_allocator_settings_that_are_set_are_not_advised() -> None:
    title = "Let the allocator grow its segments"
    assert title in titles(finding("gpu.memory_pressure"))
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        given = {f"env.{name}": "max_split_size_mb:64, expandable_segments: True"}
        assert title not in titles(finding("gpu.memory_pressure", settings=dict(given)))
    assert titles(finding("gpu.memory_pressure", settings={"env.PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}))[0].startswith(
        "Unset"
    )


def test_precision_follows_the_gpu() -> None:
    assert "bfloat16" in changes(finding("gpu.no_tensor_cores", settings={"compute_capability": 9.0}))
    old = changes(finding("gpu.no_tensor_cores", settings={"compute_capability": 7.0}))
    assert "bfloat16" not in old
    assert "GradScaler" in old
    forbidden = finding("gpu.no_tensor_cores", settings={"env.NVIDIA_TF32_OVERRIDE": "0"})
    assert titles(forbidden)[0] == "Unset NVIDIA_TF32_OVERRIDE"


def test_pinned_batches_are_not_pinned_again() -> None:
    assert "pin_memory=True" in changes(finding("gpu.host_transfer", settings={"pin_thread": "no"}))
    pinned = changes(finding("gpu.host_transfer", settings={"pin_thread": "yes"}))
    assert "pin_memory=True" not in pinned
    assert "non_blocking=True" in pinned


def test_the_reason_for_low_clocks_decides_the_remedy() -> None:
    assert titles(finding("gpu.throttled", numbers={"gpu_limited_by_heat": 0.9}))[0] == "Cool the GPU"
    power = finding("gpu.throttled", numbers={"gpu_limited_by_power": 0.9, "gpu_limited_by_heat": 0.0})
    assert titles(power)[0].startswith("Raise the power limit")
    assert titles(finding("gpu.throttled")) == ["Check for locked clocks"]


def test_nccl_switches_that_slow_it_down_come_first() -> None:
    found = finding(
        "communication.bandwidth", settings={"env.NCCL_P2P_DISABLE": "1", "env.NCCL_DEBUG": "TRACE"}, ranks=2
    )
    assert titles(found)[:2] == ["Unset NCCL_P2P_DISABLE", "Lower NCCL_DEBUG"]
    assert not any("NCCL" in title for title in titles(finding("communication.bandwidth", ranks=2)))


def test_the_loopback_is_wrong_only_between_hosts() -> None:
    settings: dict[str, str | float] = {
        "env.GLOO_SOCKET_IFNAME": "lo", "env.WORLD_SIZE": "4", "env.LOCAL_WORLD_SIZE": "2"
    }  # fmt: skip
    assert any("GLOO_SOCKET_IFNAME" in title for title in titles(finding("communication.latency", settings=settings)))
    settings["env.LOCAL_WORLD_SIZE"] = "4"
    assert not any(
        "GLOO_SOCKET_IFNAME" in title for title in titles(finding("communication.latency", settings=settings))
    )


def test_unwatched_ranks_are_counted() -> None:
    found = finding("communication.unattributed_wait", settings={"env.WORLD_SIZE": "8"}, ranks=2)
    assert "2 of 8 ranks were watched" in found.fixes[0].why


def test_idle_cores_are_offered_to_arithmetic_only_if_threads_are_limited() -> None:
    numbers = {"job_cores": 1.0, "neighbour_cores": 0.0}
    limited = finding("cpu.model_compute", numbers=numbers, settings={"cores": 8.0, "env.OMP_NUM_THREADS": "1"})
    assert titles(limited) == ["Let the arithmetic use 8 threads"]
    assert finding("cpu.model_compute", numbers=numbers, settings={"cores": 8.0}).fixes == ()
    full = {"job_cores": 8.0, "neighbour_cores": 0.0}
    assert finding("cpu.model_compute", numbers=full, settings={"cores": 8.0, "env.OMP_NUM_THREADS": "1"}).fixes == ()


def test_distributed_jobs_save_together() -> None:
    assert "async_save" in changes(finding("io.checkpoint_write", ranks=2))
    assert "async_save" not in changes(finding("io.checkpoint_write", ranks=1))


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


def test_a_free_core_is_worth_no_more_than_the_cores() -> None:
    """A job that keeps 1 of 2 cores busy cannot run more than twice as fast on both."""
    numbers = {"job_cores": 1.8, "runnable_threads": 14.0}
    crowded = finding("cpu.contention", numbers=numbers, settings={"cores": 2.0}, workers=16)
    assert crowded.predicted_speedup == pytest.approx(2 / 1.8, abs=0.01)
    burnt_at_barriers = finding("cpu.contention", numbers=numbers, settings={"cores": 2.0})
    assert burnt_at_barriers.predicted_speedup == pytest.approx(2.0)
    numbers = {"job_cores": 1.0, "runnable_threads": 2.0, "neighbour_cores": 1.0}
    beside = finding("cpu.contention", numbers=numbers, settings={"cores": 2.0}, share=0.86)
    assert beside.predicted_speedup == pytest.approx(7.1, abs=0.1)  # measured: 7.5
    light = finding("cpu.contention", numbers={"job_cores": 0.5, "neighbour_cores": 2.0}, settings={"cores": 2.0})
    assert light.predicted_speedup == pytest.approx(2.0)


def test_one_thread_under_a_quota_is_not_told_to_use_one_thread() -> None:
    settings: dict[str, str | float] = {"quota_cores": 0.65, "cores": 0.65, "affinity_cores": 2.0}
    assert titles(finding("cpu.throttled", numbers={"runnable_threads": 1.0}, settings=settings)) == [
        "Raise the CPU quota"
    ]
    several = finding("cpu.throttled", numbers={"runnable_threads": 2.0}, settings=settings)
    assert "If the quota must stay, use 1 compute thread" in titles(several)


def test_a_page_cache_that_is_too_small_is_named_only_if_it_matters() -> None:
    title = "Train on a part of the data per host"
    for refaults, named in ((20_000.0, True), (0.57, False), (0.0, False)):
        found = finding("io.storage_read", numbers={"refaults": refaults, "read_from_storage": 100.0})
        assert (title in titles(found)) is named


def test_own_python_is_not_told_to_compile() -> None:
    lines = ("a.py:3 Env.obs", "a.py:9 log")
    own = finding("cpu.python_overhead", numbers={"interpreter_code": 0.8}, lines=lines)
    assert titles(own) == ["Make a.py:3 Env.obs and a.py:9 log cheaper"]
    assert "Python code in the training step" in own.summary
    assert not {"compile", "DataLoader"} & set(changes(own).replace("(", " ").split())
    mixed = finding("cpu.python_overhead", numbers={"interpreter_code": 0.6}, lines=lines, below={"torch": 0.5})
    assert titles(mixed)[1] == "Use fewer, larger operations at a.py:3 Env.obs"
    dispatch = finding("cpu.python_overhead", numbers={"interpreter_code": 0.2}, lines=lines)
    assert titles(dispatch)[:2] == ["Use fewer, larger operations at a.py:3 Env.obs", "Compile the model"]


def test_no_loader_is_advised_to_a_job_without_one() -> None:
    assert "DataLoader" not in changes(finding("cpu.python_overhead", settings={"loader": "no"}))
    assert "DataLoader" in changes(finding("cpu.python_overhead", settings={"loader": "yes"}))


def test_idle_workers_are_not_taken_away_for_a_core() -> None:
    idle = finding("cpu.contention", numbers={"worker_cores": 0.04}, settings={"cores": 2.0}, workers=2)
    assert not any("loader worker" in title for title in titles(idle))
    busy = finding("cpu.contention", numbers={"worker_cores": 1.4}, settings={"cores": 2.0}, workers=2)
    assert "Use 1 loader worker per trainer" in titles(busy)


def test_a_job_that_fills_its_cores_need_not_look_for_others() -> None:
    full = finding("cpu.contention", numbers={"job_cores": 1.83}, settings={"cores": 2.0})
    assert titles(full) == ["Give the job more cores, or less to do on these"]
    light = finding("cpu.contention", numbers={"job_cores": 1.0}, settings={"cores": 2.0})
    assert titles(light) == ["Find out who else runs on these cores"]


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


def test_gradients_are_compressed_as_the_backend_can() -> None:
    """DistributedDataParallel refuses bf16_compress_hook on gloo."""
    cause = "communication.bandwidth"
    gloo = changes(finding(cause, settings={"backend": "gloo", "ddp": "yes"}, ranks=2))
    assert "fp16_compress_hook" in gloo
    assert "bf16" not in gloo
    assert "bf16_compress_hook" in changes(finding(cause, settings={"backend": "nccl"}, ranks=2))
    assert "bf16_compress_hook" in changes(finding(cause, settings={"gpus": 8.0}, ranks=2))
    by_hand = changes(finding(cause, settings={"backend": "gloo", "ddp": "no"}, ranks=2))
    assert "all_reduce(small)" in by_hand
    assert "no_sync" not in by_hand


def test_what_stays_on_the_host_is_not_said_to_go_through_the_network() -> None:
    cause, title = "communication.bandwidth", "Train in one process"
    here = finding(cause, numbers={"received": 138.0, "loopback": 1.0}, settings={"backend": "gloo"}, ranks=2)
    assert titles(here)[0] == title
    assert any("138 go through the loopback of this host" in fix.why for fix in here.fixes)
    there = finding(cause, numbers={"received": 138.0, "loopback": 0.1}, settings={"backend": "gloo"}, ranks=2)
    assert any("138 go through the network" in fix.why for fix in there.fixes)
    assert title not in titles(there)
    gpus: dict[str, str | float] = {"gpus": 2.0, "backend": "nccl"}
    assert title not in titles(finding(cause, numbers={"loopback": 1.0}, settings=gpus, ranks=2))


def test_contention_tells_what_the_main_thread_waits_for_others() -> None:
    others = finding("cpu.contention", numbers={"trainer_run_delay": 0.3})
    assert "for 30 % the main thread itself is ready, for the rest it waits for threads that are" in others.summary
    assert "itself" not in finding("cpu.contention", numbers={"trainer_run_delay": 0.48}).summary
    assert "itself" not in finding("cpu.contention").summary


def test_what_is_saved_in_memory_is_not_told_to_use_faster_storage() -> None:
    title = "Save to faster storage first"
    settings: dict[str, str | float] = {"mount./": "ext4", "mount./dev/shm": "tmpfs"}
    assert title in titles(finding("io.checkpoint_write", settings=settings, path="/out/a.pt"))
    assert title not in titles(finding("io.checkpoint_write", settings=settings, path="/dev/shm/a.pt"))


def test_a_job_without_workers_is_told_of_no_copies_in_workers() -> None:
    assert any("each worker" in fix.why for fix in finding("io.swap", workers=4).fixes)
    assert not any("worker" in fix.why + fix.title for fix in finding("io.swap").fixes)


def test_copies_that_a_trace_shows_pinned_are_not_pinned_again() -> None:
    pinned = changes(finding("gpu.host_transfer", numbers={"traced_pageable": 0.0}))
    assert "pin_memory=True" not in pinned
    assert "non_blocking=True" in pinned
    assert "pin_memory=True" in changes(finding("gpu.host_transfer", numbers={"traced_pageable": 0.5}))


def test_tensor_cores_do_not_make_matrix_products_free() -> None:
    assert finding("gpu.no_tensor_cores", settings={"compute_capability": 9.0}).predicted_speedup < 8
    board = finding("gpu.no_tensor_cores", settings={"compute_capability": 8.9})
    assert board.predicted_speedup == pytest.approx(1 / (1 - board.share / 2))


def test_fused_attention_and_layouts_are_advised_where_kernels_ask_for_them() -> None:
    attention, layouts = "Use fused attention", "Keep convolutions in channels last"
    assert {attention, layouts} <= set(titles(finding("gpu.memory_bandwidth")))
    traced = titles(finding("gpu.memory_bandwidth", numbers={"traced_kernel_time": 9.0, "traced_softmax": 0.2}))
    assert attention in traced
    assert layouts not in traced
