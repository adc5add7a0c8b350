"""Advice about communication fits the job: its backend, who exchanges the gradients, and over what."""

from typing import Any

import pytest

from perfdoctor.reports.wording import worded_fixes
from tests.builders.cases import changes, finding, titles


def test_what_ddp_exchanges_is_not_told_to_use_ddp() -> None:
    cause = "communication.latency"
    settings: dict[str, str | float] = {"parallel": "ddp", "backend": "gloo"}
    ddps = titles(finding(cause, settings=settings, ranks=2, backward=0.8))
    assert ddps[0] == "Exchange gradients every few steps"
    assert "Send many small tensors as one" not in ddps
    by_hand: dict[str, Any] = {"gradient sync": 0.5}
    own = titles(finding(cause, settings=settings, ranks=2, backward=0.3, **by_hand))
    assert own[0] == "Send many small tensors as one"
    for found in (ddps, own):
        assert "Leave the gradients to DistributedDataParallel" not in found
    assert "Leave the gradients to DistributedDataParallel" in titles(
        finding(cause, settings={"parallel": "no"}, ranks=2)
    )


def test_collectives_that_fully_shard_calls_are_not_the_scripts() -> None:
    """It calls them in Python, as a script does; its units are what can be made larger."""
    phases: dict[str, Any] = {"gradient sync": 0.5}
    found = finding("communication.latency", share=0.5, settings={"parallel": "fully_shard"}, ranks=2, **phases)
    assert found.fixes[0].title == "Exchange more at a time"
    assert found.fixes[0].speedup_range == pytest.approx((1.0, 1.33), abs=0.01)
    assert "Send many small tensors as one" not in titles(found)


@pytest.mark.parametrize("cause", ["communication.latency", "communication.bandwidth"])
def test_calls_of_another_process_are_no_collectives(cause: str) -> None:
    """A parameter server is asked by torch.distributed.rpc: nobody calls all_reduce, and no gradients are shared."""
    found = finding(cause, share=0.5, settings={"parallel": "no", "remote_calls": "yes"}, ranks=2)
    assert titles(found) == ["Ask for many tensors in one call"]
    assert "all_reduce" not in (found.fixes[0].change or "")


def test_what_the_script_exchanges_besides_ddp_is_no_gradient() -> None:
    settings: dict[str, str | float] = {"parallel": "ddp", "backend": "gloo", "object_collectives": "yes"}
    by_hand: dict[str, Any] = {"gradient sync": 0.5}
    found = finding("communication.bandwidth", share=0.5, settings=settings, ranks=2, **by_hand)
    assert set(titles(found)) == {"Exchange more rarely", "Gather tensors instead of objects"}
    of_hook = {**settings, "exchange_policy": "train.py:9 main"}
    for some, phases in ((settings, {"backward": 0.5}), (of_hook, by_hand), ({"parallel": "no"}, by_hand)):
        others = titles(finding("communication.bandwidth", share=0.5, settings=some, ranks=2, **phases))
        assert "Exchange more rarely" not in others


def test_waiting_for_a_late_rank_at_a_barrier_is_no_exchange_of_the_scripts() -> None:
    settings: dict[str, str | float] = {"parallel": "ddp", "backend": "gloo"}
    by_hand: dict[str, Any] = {"gradient sync": 0.4, "backward": 0.4}
    for late, besides in ((0.0, True), (0.6, False)):
        found = titles(finding("communication.bandwidth", settings=settings, ranks=2, late=late, **by_hand))
        assert ("Exchange more rarely" in found) == besides


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


def test_gradients_are_compressed_as_the_backend_can() -> None:
    """DistributedDataParallel refuses bf16_compress_hook on gloo."""
    cause = "communication.bandwidth"
    gloo = changes(finding(cause, settings={"backend": "gloo", "parallel": "ddp"}, ranks=2))
    assert "fp16_compress_hook" in gloo
    assert "bf16" not in gloo
    assert "bf16_compress_hook" in changes(finding(cause, settings={"backend": "nccl"}, ranks=2))
    assert "bf16_compress_hook" in changes(finding(cause, settings={"gpus": 8.0}, ranks=2))
    by_hand = changes(finding(cause, settings={"backend": "gloo", "parallel": "no"}, ranks=2))
    assert "all_reduce(small)" in by_hand
    assert "no_sync" not in by_hand


def test_what_stays_on_the_host_is_not_said_to_go_through_the_network() -> None:
    cause, title = "communication.bandwidth", "Train in one process"
    here = finding(cause, numbers={"received": 138.0, "loopback": 1.0}, settings={"backend": "gloo"}, ranks=2)
    assert titles(here)[0] == title
    assert any("138 goes through the loopback of this host" in fix.why for fix in here.fixes)
    there = finding(cause, numbers={"received": 138.0, "loopback": 0.1}, settings={"backend": "gloo"}, ranks=2)
    assert any("138 goes through the network" in fix.why for fix in there.fixes)
    assert title not in titles(there)
    gpus: dict[str, str | float] = {"gpus": 2.0, "backend": "nccl"}
    assert title not in titles(finding(cause, numbers={"loopback": 1.0}, settings=gpus, ranks=2))


@pytest.mark.parametrize(
    ("settings", "code", "threads"),
    [
        ({"env.RANK": "0", "env.WORLD_SIZE": "2"}, "torchrun --nproc-per-node=1 train.py", "OMP_NUM_THREADS"),
        (
            {"threads_set": "1", "ranks_started": "by the script"},
            "torch.multiprocessing.spawn(train, nprocs=1)",
            "torch.set_num_threads",
        ),
    ],
)
def test_one_process_is_started_as_the_ranks_were(settings: dict[str, str], code: str, threads: str) -> None:
    """A script that starts its own ranks would start them below a launcher as well."""
    numbers = {"received": 138.0, "loopback": 1.0}
    found = finding("communication.bandwidth", numbers=numbers, settings={"backend": "gloo", **settings}, ranks=2)
    fix = worded_fixes(found)[0]
    assert fix.change.startswith(code)
    assert f"(by {threads})" in fix.why


@pytest.mark.parametrize(
    ("way", "accumulates", "halves"),
    [
        ("ddp", "model.no_sync()", "bf16_compress_hook"),
        ("fsdp", "model.no_sync()", "MixedPrecision("),
        ("fully_shard", "set_requires_gradient_sync(last)", "MixedPrecisionPolicy("),
        ("deepspeed", "gradient_accumulation_steps", "communication_data_type"),
    ],
)
def test_each_way_of_sharing_a_model_gets_its_own_calls(way: str, accumulates: str, halves: str) -> None:
    settings: dict[str, str | float] = {"parallel": way, "gpus": 8.0, "backend": "nccl"}
    found = changes(finding("communication.bandwidth", settings=settings, ranks=2))
    assert accumulates in found
    assert halves in found
    if way != "ddp":
        assert "DistributedDataParallel(" not in found
        assert "compress_hook" not in found
    slow = finding("communication.latency", settings=settings, ranks=2)
    assert accumulates in changes(slow)
    assert not any(fix.title.startswith("Leave the gradients") for fix in slow.fixes)


def test_gradients_of_megatron_become_short_by_its_own_option() -> None:
    found = changes(finding("communication.bandwidth", settings={"parallel": "megatron", "gpus": 2.0}, ranks=2))
    assert "--grad-reduce-in-bf16" in found
    assert "compress_hook" not in found


@pytest.mark.parametrize(
    ("world", "title"), [("2", "Find out which"), ("4", "Watch the other"), (None, "Watch the other")]
)
def test_other_ranks_are_to_be_watched_only_where_there_are_others(world: str | None, title: str) -> None:
    settings: dict[str, str | float] = {} if world is None else {"env.WORLD_SIZE": world}
    for numbers in ({}, {"traced_exposed": 0.4}):
        found = finding("communication.unattributed_wait", settings=settings, numbers=numbers, ranks=2)
        assert [fix.title.startswith(title) for fix in found.fixes] == [True]
        assert ("that was not may be late" in found.fixes[0].why) is (world != "2")


def test_a_model_is_shared_within_a_host_where_there_are_several() -> None:
    settings: dict[str, str | float] = {
        "parallel": "fully_shard", "gpus": 8.0, "env.WORLD_SIZE": "16", "env.LOCAL_WORLD_SIZE": "8"
    }  # fmt: skip
    title = "Share the model within each host only"
    assert title in titles(finding("communication.bandwidth", settings=settings, ranks=2))
    settings["env.LOCAL_WORLD_SIZE"] = "16"
    assert title not in titles(finding("communication.bandwidth", settings=settings, ranks=2))


def test_layers_are_split_within_a_host_where_they_are_split() -> None:
    settings: dict[str, str | float] = {"tensor_parallel": "yes", "env.WORLD_SIZE": "16", "env.LOCAL_WORLD_SIZE": "8"}
    found = finding("communication.bandwidth", settings=settings, ranks=2)
    assert titles(found)[0] == "Split layers within each host only"
    assert "(hosts, 8)" in changes(found)
    del settings["tensor_parallel"]
    assert "Split layers within each host only" not in titles(
        finding("communication.bandwidth", settings=settings, ranks=2)
    )


def test_parameters_are_kept_only_where_memory_has_room() -> None:
    title = "Keep parameters between forward and backward pass"
    settings: dict[str, str | float] = {"parallel": "fully_shard", "gpus": 8.0}
    for used, told in ((0.3, True), (0.9, False)):
        found = finding("communication.bandwidth", settings=settings, numbers={"gpu_memory_share": used}, ranks=2)
        assert (title in titles(found)) is told


def test_a_fabric_that_lies_idle_is_named() -> None:
    title = "Have NCCL use the InfiniBand or RoCE ports"
    settings: dict[str, str | float] = {"env.WORLD_SIZE": "16", "env.LOCAL_WORLD_SIZE": "8"}
    for fabric, told in ((0.1, True), (900.0, False)):
        numbers = {"fabric_received": fabric, "received": 1000.0}
        found = finding("communication.bandwidth", settings=settings, numbers=numbers, ranks=2)
        assert (title in titles(found)) is told
    assert title not in titles(finding("communication.bandwidth", numbers={"fabric_received": 0.1, "received": 1e3}))


def test_what_nccl_was_told_to_choose_is_tried_without() -> None:
    found = finding("communication.bandwidth", settings={"env.NCCL_PROTO": "LL"}, ranks=2)
    assert titles(found)[0] == "Try without NCCL_PROTO"


def test_checks_of_collectives_are_to_be_taken_away() -> None:
    for level, told in (("DETAIL", True), ("INFO", False)):
        settings: dict[str, str | float] = {"parallel": "ddp", "env.TORCH_DISTRIBUTED_DEBUG": level}
        found = titles(finding("communication.latency", share=0.5, settings=settings, ranks=2))
        assert ("Unset TORCH_DISTRIBUTED_DEBUG" in found) is told


def test_sync_batch_norm_is_named_where_it_was_seen() -> None:
    title = "Leave SyncBatchNorm out"
    assert titles(finding("communication.latency", settings={"sync_batch_norm": "yes"}, ranks=2))[0] == title
    assert title not in titles(finding("communication.latency", ranks=2))


@pytest.mark.parametrize("way", ["ddp", "fully_shard"])
@pytest.mark.parametrize("policy", ["", "train.py:7 main"])
def test_who_says_in_which_numbers_ranks_exchange_is_not_told_to(way: str, policy: str) -> None:
    settings: dict[str, str | float] = {"parallel": way, **({"exchange_policy": policy} if policy else {})}
    told = [
        title for title in titles(finding("communication.bandwidth", settings=settings, ranks=2)) if "16 bits" in title
    ]
    assert len(told) == (not policy)


@pytest.mark.parametrize("cause", ["communication.bandwidth", "communication.latency"])
def test_a_job_that_accumulates_is_told_to_exchange_once_and_its_steps_stay_as_they_are(cause: str) -> None:
    settings: dict[str, str | float] = {"parallel": "ddp", "backend": "gloo", "exchanges_again": "train.py:30 main"}
    found = finding(cause, settings=settings, ranks=2, backward=0.8)
    fix = next(fix for fix in found.fixes if "once per update" in fix.title)
    assert "train.py:30 main" in fix.why
    assert "model.no_sync()" in fix.change
    assert not fix.changes_step
    assert fix.speedup_range is not None
    assert "Exchange gradients every few steps" not in titles(found)


def test_a_job_that_accumulates_in_one_loop_sees_its_own_condition() -> None:
    settings: dict[str, str | float] = {"parallel": "ddp", "exchanges_again": "train.py:30 main"}
    settings["updates_when"] = "(i + 1) % parts == 0"
    found = finding("communication.bandwidth", settings=settings, ranks=2, backward=0.8)
    change = next(fix.change for fix in found.fixes if "once per update" in fix.title)
    assert change.startswith("last = (i + 1) % parts == 0\nwith contextlib.nullcontext() if last else model.no_sync():")
    assert "learning rate" not in change


@pytest.mark.parametrize(("neighbours", "fixes"), [(1.2, True), (0.0, False)])
def test_how_much_is_advised_does_not_depend_on_who_else_uses_the_cores(neighbours: float, fixes: bool) -> None:
    """0.07 of the time are 0.13 of what 0.45 of queueing leaves; queueing of the job's own making is its own fault."""
    settings: dict[str, str | float] = {"parallel": "ddp", "exchanges_again": "train.py:30 main", "cores": 2.0}
    numbers = {"neighbour_cores": neighbours, "job_cores": 0.8, "runnable_threads": 1.5}
    beside = {"cpu.contention": 0.45}
    found = finding("communication.bandwidth", share=0.07, settings=settings, numbers=numbers, beside=beside, ranks=2)
    assert (len(found.fixes) > 1) == fixes


def test_what_is_exchanged_beside_gradients_is_not_freed_by_fewer_passes() -> None:
    """Objects that ranks gather in each step, beside a model whose gradients take as long."""
    settings: dict[str, str | float] = {"parallel": "ddp", "backend": "gloo", "object_collectives": "yes"}
    phases: dict[str, Any] = {"gradient sync": 0.09, "backward": 0.5}
    cause, besides = "communication.latency", (("train.py:46 gather", 0.1),)
    found = finding(cause, share=0.2, settings=settings, ranks=2, exchanged=besides, **phases)
    gains = {fix.title: fix.predicted_speedup for fix in found.fixes}
    assert gains["Do the exchange at train.py:46 gather more rarely"] == pytest.approx(1.11, abs=0.01)
    assert "Gather tensors instead of objects" in gains
    seldom = "Exchange gradients every few steps"
    alone = finding(cause, share=0.2, settings=settings, ranks=2, **phases)
    assert gains[seldom] == pytest.approx(1 / (1 - 0.75 * 0.1), abs=0.01)
    assert next(fix for fix in alone.fixes if fix.title == seldom).predicted_speedup == pytest.approx(1.18, abs=0.01)
