"""Which treatments are tried: led by the account, by what the job has made, and by the cores."""

from dataclasses import replace
from typing import Any

import pytest

from perfdoctor import causes
from perfdoctor.diagnosis import Advice, CauseShare, Diagnosis, Finding, Verdict, advise
from perfdoctor.treat.situation import Situation, Treatment
from perfdoctor.treat.treatments import choose

LOADER = {
    "kind": "loader",
    "name": "DataLoader",
    "iterable": False,
    "method": "fork",
    "importable": True,
    "values": {"num_workers": 0},
}
TORCH = {"kind": "torch", "version": "2.13", "threads": 4}
ACCUMULATES = {"kind": "accumulation", "passes": 4, "exchanged": 4, "models": 1}
ADAM = {
    "kind": "optimizer",
    "name": "Adam",
    "options": ["foreach", "fused"],
    "values": {"foreach": None, "fused": None},
    "tensors": 20,
    "device": "cpu",
    "kernels": True,
}


def chosen(
    shares: dict[str, float],
    *facts: dict[str, Any],
    variables: dict[str, str] | None = None,
    findings: tuple[Finding, ...] = (),
    cores: int = 4,
    waited: tuple[str, ...] = (),
    own_cores: tuple[int, ...] = (),
) -> dict[str, Treatment]:
    situation = case(
        shares, *facts, variables=variables, findings=findings, cores=cores, waited=waited, own_cores=own_cores
    )
    return {one.id: one for one in choose(situation)}


def case(
    shares: dict[str, float],
    *facts: dict[str, Any],
    variables: dict[str, str] | None = None,
    findings: tuple[Finding, ...] = (),
    cores: int = 4,
    waited: tuple[str, ...] = (),
    own_cores: tuple[int, ...] = (),
    ranks: int = 1,
) -> Situation:
    verdict = Verdict(None, None, 0, 0, 1, None, "", "")
    breakdown = tuple(CauseShare(cause, share) for cause, share in shares.items())
    diagnosis = Diagnosis("0", verdict, breakdown, findings, ({},) * ranks, job={"settings": {"cores": cores}})
    return Situation(diagnosis, [TORCH, *facts], variables or {}, waited, own_cores)


def test_a_slow_input_gets_workers_alone_and_with_fewer_threads() -> None:
    found = chosen({causes.INPUT_PREPROCESSING: 0.6}, LOADER, ADAM)
    assert {"num_workers=3", "num_workers=3, threads=1", "num_workers=4", "cached batches"} <= found.keys()
    both = found["num_workers=3, threads=1"].change
    loader = {"num_workers": 3, "persistent_workers": True}
    assert both.settings == {"threads": 1, "loader": loader, "workers": "more"}
    assert both.variables["OMP_NUM_THREADS"] == "1"


def test_the_number_of_workers_is_the_diagnosis_s() -> None:
    fix = replace(advise("workers.more", useful=2), predicted_speedup=1.7)
    finding = Finding(causes.INPUT_PREPROCESSING, 0.6, "high", 2.5, "", fixes=(fix,))
    situation = case({causes.INPUT_PREPROCESSING: 0.6}, LOADER, findings=(finding,))
    found = {one.id: one for one in choose(situation)}
    assert next(iter(found)) == "num_workers=2"  # what is advised is tried first
    assert situation.predicted(found["num_workers=2"]) == 1.7
    assert situation.predicted(found["cached batches"]) is None
    assert situation.most(found["cached batches"]) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("cause", "advice", "name"),
    [
        (
            causes.GARBAGE_COLLECTION,
            advise("interpreter.collect_rarely", share=0.5, several_ranks=False),
            "gc.freeze()",
        ),
        (causes.PYTHON_OVERHEAD, advise("optimizer.fused", share=0.5), "fused=True"),
        (causes.CONTENTION, advise("cores.fewer_threads", fitting=3), "threads=3"),
        (causes.CONTENTION, advise("cores.fewer_workers", fitting=2), "num_workers=2"),
        (causes.WORKER_STARTUP, advise("input.keep_workers"), "persistent_workers=True"),
    ],
)
def test_what_the_diagnosis_advises_is_tried_with_its_prediction(cause: str, advice: Advice, name: str) -> None:
    finding = Finding(cause, 0.5, "high", 1.6, "", fixes=(replace(advice, predicted_speedup=1.6),))
    loader = {**LOADER, "values": {"num_workers": 5}}
    situation = case({cause: 0.5}, loader, ADAM, findings=(finding,))
    first = choose(situation)[0]
    assert first.id == name
    assert situation.predicted(first) == 1.6


def test_what_no_treatment_makes_is_left_to_the_user_by_name() -> None:
    """Once, and without what promises nothing."""
    made = replace(advise("input.keep_workers", starts=None, life=None), predicted_speedup=1.6)
    cheaper = replace(advise("input.whole_batches"), predicted_speedup=1.4)
    unknown = advise("input.longer_epochs")
    finding = Finding(causes.WORKER_STARTUP, 0.5, "high", 1.6, "", fixes=(made, cheaper, unknown))
    twice = replace(finding, cause=causes.DATA_TRANSFER)
    loader = {**LOADER, "values": {"num_workers": 2}}
    situation = case({causes.WORKER_STARTUP: 0.5}, loader, findings=(finding, twice))
    assert [one.message.id for one in situation.by_hand(choose(situation))] == ["input.whole_batches"]
    iterable = case({causes.WORKER_STARTUP: 0.5}, findings=(finding,))
    assert [one.message.id for one in iterable.by_hand(choose(iterable))] == [
        "input.keep_workers",
        "input.whole_batches",
    ]


def test_an_iterable_dataset_keeps_its_workers() -> None:
    found = chosen({causes.INPUT_PREPROCESSING: 0.6}, {**LOADER, "iterable": True})
    assert not [name for name in found if name.startswith("num_workers")]


def test_without_a_loader_none_is_changed() -> None:
    found = chosen({causes.INPUT_PREPROCESSING: 0.6}, ADAM)
    assert not [name for name in found if "loader" in found[name].change.settings or name == "cached batches"]


def test_what_takes_no_time_is_not_treated() -> None:
    shares = {causes.GARBAGE_COLLECTION: 0.04, causes.MODEL_COMPUTE: 0.3, causes.UNATTRIBUTED: 0.66}
    found = chosen(shares, LOADER, ADAM)
    assert not [one for one in found.values() if one.causes == (causes.GARBAGE_COLLECTION,)]
    assert "compile" in found


def test_the_collector_comes_before_the_arithmetic() -> None:
    shares = {causes.GARBAGE_COLLECTION: 0.3, causes.MODEL_COMPUTE: 0.7}
    collect = {"kind": "collect", "file": "train.py", "line": 7}
    found = list(chosen(shares, ADAM, collect))
    assert found[:2] == ["gc.collect() rarely", "gc.freeze()"]
    assert found.index("gc.freeze()") < found.index("compile")


@pytest.mark.parametrize(
    ("torch", "python", "device", "fuses", "compiles"),
    [
        ("2.3.1", "3.10", "cpu", False, True),
        ("2.3.1", "3.12", "cuda", True, False),
        ("2.6.0", "3.12", "cpu", True, True),
    ],
)
def test_nothing_is_tried_that_the_jobs_pytorch_does_not_have(
    torch: str, python: str, device: str, fuses: bool, compiles: bool
) -> None:
    situation = case({causes.PYTHON_OVERHEAD: 0.5}, {**ADAM, "device": device})
    diagnosis = Diagnosis(
        "0", Verdict(None, None, 0, 0, 1, None, "", ""), (CauseShare(causes.PYTHON_OVERHEAD, 0.5),), (),
        job={"settings": {}, "python": python},
    )  # fmt: skip
    facts = [{**TORCH, "version": torch}, *situation.all("optimizer")]
    tried = {one.id for one in choose(Situation(diagnosis, facts, {}))}
    assert ("fused=True" in tried, "compile" in tried) == (fuses, compiles)


def test_an_optimizer_that_is_fused_already_stays() -> None:
    fused = {**ADAM, "values": {"foreach": None, "fused": True}}
    assert "fused=True" in chosen({causes.PYTHON_OVERHEAD: 0.5}, ADAM)
    assert "fused=True" not in chosen({causes.PYTHON_OVERHEAD: 0.5}, fused)


def test_on_a_gpu_its_switches_are_tried_and_the_cpu_s_are_not() -> None:
    shares = {causes.GPU_COMPUTE: 0.6, causes.HOST_TRANSFER: 0.2, causes.CONTENTION: 0.2}
    found = chosen(shares, LOADER, {**ADAM, "device": "cuda"})
    assert {"cudnn.benchmark", "TF32", "pin_memory=True", "channels_last"} <= found.keys()
    assert not {"huge pages", "glibc keeps freed memory"} & found.keys()
    assert not {"cudnn.benchmark", "TF32", "pin_memory=True"} & chosen(shares, LOADER, ADAM).keys()


def test_files_that_are_waited_for_are_staged() -> None:
    shares = {causes.STORAGE_READ: 0.5}
    fix = replace(advise("io.keep_in_memory", path="/data/a.bin", available=None), predicted_speedup=1.9)
    finding = Finding(causes.STORAGE_READ, 0.5, "high", 1.9, "", fixes=(fix,))
    situation = case(shares, findings=(finding,), waited=("/data",))
    staged = next(one for one in choose(situation) if one.id == "staged in memory")
    assert staged.change.settings == {"staged": ["/data"]}
    assert situation.predicted(staged) == 1.9
    assert "staged in memory" not in chosen(shares)
    assert "staged in memory" not in chosen({causes.MODEL_COMPUTE: 0.9}, waited=("/data",))


def test_trainer_and_workers_get_cores_of_their_own() -> None:
    crowded, loader = {causes.CONTENTION: 0.4}, {**LOADER, "values": {"num_workers": 2}}
    bound = chosen(crowded, loader, own_cores=(0, 2, 1, 3))["affinity, threads=2"]
    assert bound.change.settings == {"threads": 2, "affinity": [([0, 2], [1, 3])]}
    assert not bound.exact
    few = {**TORCH, "threads": 1}
    alone = chosen(crowded, loader, few, own_cores=(0, 1))["affinity"]
    assert (alone.change.settings, alone.exact) == ({"affinity": [([0], [1])]}, True)
    for nothing_to_share in ((0,), ()):
        assert "affinity" not in chosen(crowded, loader, few, own_cores=nothing_to_share)
    assert "affinity" not in chosen(crowded, LOADER, few, own_cores=(0, 1))


def test_each_rank_gets_cores_of_its_own() -> None:
    situation = case({causes.CONTENTION: 0.4}, {**TORCH, "threads": 1}, own_cores=(0, 1, 2, 3), ranks=2)
    bound = next(one for one in choose(situation) if one.id == "affinity")
    assert bound.change.settings == {"affinity": [([0, 1], []), ([2, 3], [])]}


def test_workers_are_started_otherwise_where_that_is_safe() -> None:
    slow, workers = {causes.WORKER_STARTUP: 0.4}, {**LOADER, "values": {"num_workers": 2}}
    spawned, bare = {**workers, "method": "spawn"}, {**workers, "importable": False}
    assert _starts(chosen(slow, workers)) == {"forkserver"}
    assert not _starts(chosen(slow, bare))
    found = chosen(slow, spawned)
    assert _starts(found) == {"forkserver", "multiprocessing_context=fork"}
    assert found["forkserver"].change.settings["preload"] == ["__main__", "torch"]
    assert _starts(chosen(slow, spawned, {**ADAM, "device": "cuda"})) == {"forkserver"}
    assert not _starts(chosen({causes.INPUT_PREPROCESSING: 0.9}, spawned))


def _starts(found: dict[str, Treatment]) -> set[str]:
    return {name for name in found if "fork" in name}


def test_accumulated_gradients_are_exchanged_once() -> None:
    waits = {causes.BANDWIDTH: 0.4}
    steps = [ACCUMULATES, {**ACCUMULATES, "passes": 2, "exchanged": 2}]
    assert chosen(waits, *steps)["no_sync"].change.settings == {"no_sync": 4}
    assert "no_sync" not in chosen(waits, {**ACCUMULATES, "exchanged": 1})  # it does so already
    assert "no_sync" not in chosen(waits, {**ACCUMULATES, "models": 2})
    assert "no_sync" not in chosen(waits, {**ACCUMULATES, "passes": 1, "exchanged": 1})
    assert "no_sync" not in chosen({causes.MODEL_COMPUTE: 0.9}, *steps)


def test_debugging_is_switched_off() -> None:
    found = chosen({causes.PYTHON_OVERHEAD: 0.5}, {"kind": "anomaly"}, variables={"PYTHONDEVMODE": "1"})
    assert found["without PYTHONDEVMODE"].change.variables == {"PYTHONDEVMODE": None}
    assert "no anomaly detection" in found


def test_too_many_workers_become_fewer() -> None:
    loader = {**LOADER, "values": {"num_workers": 8, "persistent_workers": True}}
    found = chosen({causes.CONTENTION: 0.4}, loader)
    assert {"num_workers=0", "num_workers=3"} <= found.keys()
    assert "persistent_workers=True" not in found


def test_every_treatment_says_how_it_is_made_permanent() -> None:
    from perfdoctor.reports.wording import worded_fix

    called = [{"kind": kind} for kind in ("ddp", "save", "anomaly")]
    facts = [{**LOADER, "values": {"num_workers": 2}}, ADAM, ACCUMULATES, *called]
    found = chosen(dict.fromkeys(causes.CAUSES, 0.1), *facts, waited=("/data",), own_cores=(0, 1, 2, 3))
    assert len(found) > 12
    for treatment in found.values():
        fix = worded_fix(treatment.advice)
        assert fix.title
        assert fix.why.endswith(".")
        assert fix.change


@pytest.mark.parametrize(("value", "tried"), [("default", True), ("avx2", False)])
def test_instructions_that_a_variable_forbids_are_tried(value: str, tried: bool) -> None:
    found = chosen({causes.MODEL_COMPUTE: 0.9}, TORCH, variables={"ATEN_CPU_CAPABILITY": value})
    assert ("without ATEN_CPU_CAPABILITY" in found) is tried
    assert not tried or found["without ATEN_CPU_CAPABILITY"].change.variables == {"ATEN_CPU_CAPABILITY": None}
