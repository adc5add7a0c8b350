"""Ranks that share layers exchange activations: nothing about gradients helps them."""

import pytest

from tests.builders.cases import changes, finding, titles

SHARED: dict[str, str | float] = {"activations": "added up", "tensor_parallel": "yes", "backend": "nccl"}
DIVIDED: dict[str, str | float] = {"activations": "all to all", "backend": "nccl"}


@pytest.mark.parametrize("cause", ["communication.bandwidth", "communication.latency"])
def test_who_shares_layers_hears_nothing_of_gradients(cause: str) -> None:
    found = finding(cause, settings=SHARED, ranks=4)
    assert "Share layers among fewer ranks" in titles(found)
    assert "activations" in found.summary
    assert not any(word in title for title in titles(found) for word in ("radients", "every few steps", "as one"))
    assert "no_sync" not in found.refuted_by


@pytest.mark.parametrize(
    ("world", "code", "saved"), [("2", "DistributedDataParallel(model)", 0.3), ("8", "(2, 4)", 0.3 * 4 / 7)]
)
def test_half_as_many_ranks_for_each_layer_exchange_less(world: str, code: str, saved: float) -> None:
    found = finding(
        "communication.bandwidth", share=0.3, settings={**SHARED, "env.WORLD_SIZE": world}, ranks=int(world)
    )
    fix = next(fix for fix in found.fixes if fix.title == "Share layers among fewer ranks")
    assert code in fix.change
    assert fix.speedup_range is not None
    assert fix.speedup_range == pytest.approx((1.0, 1 / (1 - saved)))


def test_what_the_script_exchanges_besides_is_to_be_exchanged_rarely() -> None:
    found = finding("communication.latency", share=0.4, settings=SHARED, ranks=2)
    assert "more rarely" not in str(titles(found))
    alone = found.predicted_speedup
    besides = (("train.py:9 norms", 0.2), ("train.py:7 log", 0.02))
    found = finding("communication.latency", share=0.4, settings=SHARED, ranks=2, exchanged=besides)
    rarely = next(fix for fix in found.fixes if fix.title == "Do the exchange at train.py:9 norms more rarely")
    assert rarely.predicted_speedup == pytest.approx(1 / (1 - 0.22))
    groups = next(fix for fix in found.fixes if fix.title == "Share layers among fewer ranks")
    assert (groups.predicted_speedup or 9.0) < (alone or 0.0)


def test_who_trains_nothing_hears_of_no_gradients() -> None:
    settings: dict[str, str | float] = {**SHARED, "trains": "no"}
    found = finding("communication.bandwidth", settings=settings, numbers={"gpus": 4.0}, ranks=4)
    assert "Share layers among fewer ranks" in titles(found)
    told = changes(found) + "".join(fix.why for fix in found.fixes)
    assert not any(word in told for word in ("radient", "backward", "loss", "fully_shard"))


def test_sixteen_bits_are_for_gpus() -> None:
    for gpus, told in ((0.0, False), (2.0, True)):
        numbers = {"gpus": gpus} if gpus else {}
        found = finding("communication.bandwidth", settings=SHARED, numbers=numbers, ranks=2)
        assert ("Exchange activations in 16 bits" in titles(found)) == told


def test_layers_are_shared_within_a_host() -> None:
    launched: dict[str, str | float] = {"env.WORLD_SIZE": "8", "env.LOCAL_WORLD_SIZE": "4"}
    for settings in (SHARED, {"parallel": "fully_shard", "tensor_parallel": "yes"}):
        found = finding("communication.bandwidth", settings={**settings, **launched}, ranks=4)
        assert "(hosts, 4)" in changes(found)
        assert "Share layers among fewer ranks" not in titles(found)


@pytest.mark.parametrize("cause", ["communication.bandwidth", "communication.latency"])
@pytest.mark.parametrize("parallel", ["no", "ddp"])
def test_what_is_sent_all_to_all_is_neither_gradients_nor_split_layers(cause: str, parallel: str) -> None:
    found = finding(cause, settings={**DIVIDED, "parallel": parallel}, ranks=4)
    assert "(all to all)" in found.summary
    assert {
        "Divide experts, tables or sequences among fewer ranks",
        "Compute something else while activations are sent",
    } <= set(titles(found))
    assert not any(word in str(titles(found)) for word in ("radients", "layers", "every few steps", "as one"))
    launched: dict[str, str | float] = {"env.WORLD_SIZE": "8", "env.LOCAL_WORLD_SIZE": "4"}
    assert "(hosts, 4)" in changes(finding(cause, settings={**DIVIDED, **launched}, ranks=4))


@pytest.mark.parametrize(("world", "saved"), [("2", 0.3), ("8", 0.3 / 7)])
def test_fewer_ranks_send_less_to_each_other(world: str, saved: float) -> None:
    settings = {**DIVIDED, "env.WORLD_SIZE": world}
    found = finding("communication.bandwidth", share=0.3, settings=settings, ranks=int(world))
    fix = next(fix for fix in found.fixes if fix.title.startswith("Divide"))
    assert fix.speedup_range == pytest.approx((1.0, 1 / (1 - saved)))
