"""Settings that are switched between steps: what each does to torch and Python, and that nothing of it stays."""

# ruff: noqa: TID253
import gc
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo  # optimizers load it with their first step, and it sets environment variables
from torch.optim import optimizer as optimizers

from perfdoctor.probes.inside.switches import KINDS, Switches
from perfdoctor.probes.treated.changes import Changes

PRECISIONS = ("backends.cuda.matmul", "backends.mkldnn.matmul", "backends.cudnn.conv")


def settings() -> dict[str, Any]:
    """Whatever a switch may change."""
    owners = {name: named(name) for name in PRECISIONS}
    return {
        "threads": torch.get_num_threads(),
        "collector": (gc.get_threshold(), gc.get_freeze_count(), gc.isenabled(), gc.collect),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled(), torch.set_anomaly_enabled),
        "precision": (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32),
        "of backends": {name: getattr(one, "fp32_precision", None) for name, one in owners.items()},
        "benchmark": torch.backends.cudnn.benchmark,
        "hooks": (list(optimizers._global_optimizer_pre_hooks), list(optimizers._global_optimizer_post_hooks)),
    }


def named(name: str) -> Any:
    owner: Any = torch
    for part in name.split("."):
        owner = getattr(owner, part)
    return owner


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    before = settings()
    yield
    assert settings() == before


def changed(wanted: dict[str, Any], look: Callable[[], Any]) -> Any:
    """What is to be seen while some settings are switched on."""
    switches = Switches(wanted)
    switches.on()
    try:
        return look()
    finally:
        switches.off()
        assert set(switches.held) == set(wanted)


def test_threads_are_others_meanwhile() -> None:
    now = torch.get_num_threads()
    assert changed({"threads": now + 3}, torch.get_num_threads) == now + 3


def test_what_the_script_sets_meanwhile_stays() -> None:
    now = torch.get_num_threads()
    changed({"threads": now + 3}, lambda: torch.set_num_threads(now + 1))
    assert torch.get_num_threads() == now + 1
    torch.set_num_threads(now)


def test_objects_are_frozen_meanwhile() -> None:
    frozen, threshold = changed({"gc": [50_000, 20, 20]}, lambda: (gc.get_freeze_count(), gc.get_threshold()))
    assert frozen > 10_000
    assert threshold == (50_000, 20, 20)


def test_what_the_script_has_frozen_is_not_touched() -> None:
    gc.freeze()
    try:
        frozen, switches = gc.get_freeze_count(), Switches({"gc": [50_000, 20, 20]})
        switches.on()
        switches.off()
        assert switches.held == []
        assert abs(gc.get_freeze_count() - frozen) < 100
    finally:
        gc.unfreeze()


def test_only_some_of_the_scripts_own_collections_are_made() -> None:
    made: list[int] = []

    def count(phase: str, about: dict[str, int]) -> None:
        made.extend([about["generation"]] if phase == "start" and about["generation"] == 2 else [])

    def collect() -> None:
        for _ in range(100):
            gc.collect()

    gc.callbacks.append(count)
    try:
        changed({"collect_every": 50}, collect)
    finally:
        gc.callbacks.remove(count)
    assert len(made) == 2


def test_anomaly_detection_is_off_whatever_the_script_asks_and_then_as_it_asked() -> None:
    def ask() -> bool:
        torch.autograd.set_detect_anomaly(True, check_nan=False)
        return torch.is_anomaly_enabled()

    try:
        assert not changed({"no_anomaly_detection": True}, ask)
        assert torch.is_anomaly_enabled()
        assert not torch.is_anomaly_check_nan_enabled()
    finally:
        torch.autograd.set_detect_anomaly(False)


def test_precision_and_flags_go_back_to_what_they_were() -> None:
    wanted = {"matmul_precision": "high", "flags": {"backends.cudnn.benchmark": True}}
    seen = changed(wanted, lambda: (torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark))
    assert seen == ("high", True)


def small(kind: type[torch.optim.Optimizer], **options: Any) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model, kind(model.parameters(), lr=0.01, **options)  # type: ignore[call-arg]


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    losses = []
    for number in steps:
        inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(number))
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("option", ["fused", "foreach"])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_an_optimizers_option_is_on_while_it_steps_only(kind: type[torch.optim.Optimizer], option: str) -> None:
    """The first steps are usual ones, so that it goes on from a state that was made without."""
    model, optimizer = small(kind)
    seen: list[Any] = []
    watched = optimizer.register_step_pre_hook(lambda one, *_: seen.append(one.param_groups[0][option]))
    usual = train(*small(kind), range(9))
    losses = train(model, optimizer, range(3))
    before = dict(optimizer.param_groups[0])
    losses += changed({"optimizer": {option: True}}, lambda: train(model, optimizer, range(3, 6)))
    assert optimizer.param_groups[0] == before
    losses += train(model, optimizer, range(6, 9))
    watched.remove()
    assert [bool(one) for one in seen] == [False] * 3 + [True] * 3 + [False] * 3
    assert losses == pytest.approx(usual, rel=1e-4)


def test_an_option_is_taken_back_from_a_step_that_raises() -> None:
    _, optimizer = small(torch.optim.Adam)

    def fail() -> float:
        raise ValueError

    switches = Switches({"optimizer": {"foreach": True}})
    switches.on()
    with pytest.raises(ValueError, match=r"^$"):
        optimizer.step(fail)
    switches.off()
    assert optimizer.param_groups[0]["foreach"] is None


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"capturable": False, "differentiable": True}])
def test_what_the_script_has_chosen_itself_stays(options: dict[str, bool]) -> None:
    model, optimizer = small(torch.optim.Adam, **options)
    switches = Switches({"optimizer": {"fused": True}})
    switches.on()
    if "differentiable" not in options:
        train(model, optimizer, range(1))
    switches.off()
    assert switches.held == []


def test_gradients_that_lie_otherwise_than_their_parameters_are_left_alone() -> None:
    weight = torch.nn.Parameter(torch.rand(4, 6))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.rand(6, 4).t()
    switches = Switches({"optimizer": {"fused": True}})
    switches.on()
    optimizer.step()
    switches.off()
    assert switches.held == []


def test_where_one_fails_none_is_on() -> None:
    switches = Switches({"threads": torch.get_num_threads() + 1, "flags": {"backends.nowhere.x": 1}})
    with pytest.raises(AttributeError):
        switches.on()


def test_each_kind_is_one_of_the_start_hooks() -> None:
    source = inspect.getsource(Changes)
    assert [kind for kind in KINDS if f'"{kind}"' not in source and f"def _{kind}" not in source] == []
