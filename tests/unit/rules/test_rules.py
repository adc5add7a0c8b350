"""Rules on hand-made case: each cause is found, explained, and nothing is claimed that was not measured."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

import perfdoctor.rules
from perfdoctor.causes import CAUSES, UNATTRIBUTED
from perfdoctor.diagnosis import Evidence, Finding
from perfdoctor.metrics.names import METRICS
from perfdoctor.reports.wording import worded_finding
from perfdoctor.rules import RULES, find
from perfdoctor.rules.case import Case, Trainer
from tests.files import ROOT

ILL = [cause.id for cause in CAUSES.values() if not cause.healthy and cause.id != UNATTRIBUTED]
DOCS = ROOT / "docs"
HEALTHY = [cause.id for cause in CAUSES.values() if cause.healthy]


def trainer(rank: int = 0, workers: int = 0, **phases: float) -> Trainer:
    pid = 100 + rank
    return Trainer(rank, pid, {}, phases, {}, tuple(range(1000, 1000 + workers)), workers)


def case(
    shares: dict[str, float],
    *,
    trainers: tuple[Trainer, ...] = (),
    culprits: dict[str, tuple[int, ...]] | None = None,
    numbers: dict[str, float] | None = None,
    settings: dict[str, str | float] | None = None,
    **more: dict[str, tuple[tuple[str, float], ...]],
) -> Case:
    measured = {name: Evidence(name, value, "", "test") for name, value in (numbers or {}).items()}
    shares = {**shares, "cpu.model_compute": shares.get("cpu.model_compute", 0) + 1 - sum(shares.values())}
    return Case(
        shares,
        trainers or (trainer(data=0.0),),
        culprits or {},
        measured,
        settings or {},
        watched_s=15.0,
        **more,
    )


def only(shares: dict[str, float], **more: object) -> Finding:
    """The finding for the first cause of ``shares``."""
    found, broken = find(case(shares, **more))  # type: ignore[arg-type]
    assert not broken
    return worded_finding(next(finding for finding in found if finding.cause == next(iter(shares))))


def test_there_is_one_rule_per_cause_and_others_for_special_cases() -> None:
    assert sorted({rule.cause for rule in RULES}) == sorted([*ILL, *HEALTHY])


@pytest.mark.parametrize("cause", ILL)
def test_every_cause_is_found_without_any_number(cause: str) -> None:
    """Missing numbers and settings neither crash a rule nor show up as zeros."""
    found = only({cause: 0.4})
    assert found.share == pytest.approx(0.4)
    assert found.severity == "high"
    assert found.predicted_speedup <= 1 / 0.6 + 1e-9
    assert found.fixes
    assert found.refuted_by
    assert [evidence.probe for evidence in found.evidence] == ["breakdown"]
    for sentence in (
        found.summary,
        found.refuted_by,
        *(fix.title for fix in found.fixes),
        *(fix.why for fix in found.fixes),
    ):
        assert "None" not in sentence
        assert "nan" not in sentence.split()
    for fix in found.fixes:
        assert fix.title
        assert fix.why
        assert fix.change


@pytest.mark.parametrize("cause", ILL)
def test_every_cause_survives_odd_numbers(cause: str) -> None:
    """Zeros and huge numbers divide nothing by zero and promise nothing impossible."""
    names = (
        "job_cores",
        "workers_busy",
        "worker_busy",
        "device_busy",
        "read_by_calls",
        "read_from_storage",
        "gpu_busy",
    )
    for value in (0.0, 1e9):
        for workers in (0, 4):
            found = only(
                {cause: 0.999},
                trainers=(trainer(workers=workers, data=0.999),),
                numbers=dict.fromkeys(names, value),
                settings={"cores": 2.0, "host_cores": 2.0, "quota_cores": 0.1, "affinity_cores": 2.0},
            )
            assert 1 <= found.predicted_speedup <= 100
            assert math.isfinite(found.predicted_speedup)


@pytest.mark.parametrize("cause", ILL)
def test_a_small_share_is_not_reported(cause: str) -> None:
    found, _ = find(case({cause: 0.04}))
    assert [finding.cause for finding in found] == ["cpu.model_compute"]


@pytest.mark.parametrize("cause", HEALTHY)
def test_a_sound_job_gets_no_cure(cause: str) -> None:
    found, _ = find(Case({cause: 0.97, UNATTRIBUTED: 0.03}, (trainer(data=0.01),), {}))
    assert [finding.cause for finding in found] == [cause]
    assert found[0].severity == "none"
    assert found[0].predicted_speedup == 1.0
    assert found[0].fixes == ()


def test_nothing_is_claimed_from_nothing() -> None:
    assert find(Case({}, (), {})) == ([], [])
    assert find(Case({UNATTRIBUTED: 1.0}, (), {})) == ([], [])


@pytest.mark.parametrize("cause", ILL)
def test_every_cause_can_do_without_trainers(cause: str) -> None:
    found, _ = find(Case({cause: 0.5}, (), {}))
    assert found[0].ranks == ()


def test_rules_ask_only_for_numbers_that_are_measured() -> None:
    """A misspelt name would silently never be found."""
    sources = [path.read_text() for path in Path(perfdoctor.rules.__file__).parent.glob("*.py")]
    asked = {name for source in sources for name in re.findall(r'(?:number|measured)\(\s*"(\w+)"', source)}
    shown = {name for rule in RULES for name in rule.evidence}
    assert asked
    assert shown
    assert (asked | shown) - set(METRICS) == set()


@pytest.mark.parametrize(
    ("value", "unit", "probe", "shown"),
    [
        (5.57e-14, "cores", "cpu", False), (0.02, "cores", "cpu", True), (0.0, "cores", "cpu", True),
        (0.003, "of the time", "threads", False), (0.003, "of the time", "gpu", True), (0.003, "MB/s", "io", True),
    ],
)  # fmt: skip
def test_what_could_not_be_measured_is_no_evidence(value: float, unit: str, probe: str, shown: bool) -> None:
    number = Evidence("what", value, unit, probe)
    given = Case({"cpu.contention": 0.5}, (trainer(),), {}, {"neighbour_cores": number})
    assert (number in find(given)[0][0].evidence) is shown


def test_lines_with_next_to_nothing_of_a_cause_are_not_shown() -> None:
    lines = {"cpu.python_overhead": (("a.py:1 f", 0.995), ("a.py:2 g", 0.005))}
    [where] = [one for one in only({"cpu.python_overhead": 0.5}, lines=lines).evidence if one.probe == "stacks"]
    assert "a.py:1 f" in str(where.value)


def test_findings_are_sorted_by_share() -> None:
    found, _ = find(case({"io.log_write": 0.1, "cpu.throttled": 0.3, "cpu.gil_contention": 0.2}))
    assert [finding.cause for finding in found] == [
        "cpu.model_compute",
        "cpu.throttled",
        "cpu.gil_contention",
        "io.log_write",
    ]
    assert [finding.severity for finding in found] == ["none", "high", "medium", "low"]


def test_speedup_follows_from_the_share() -> None:
    assert only({"cpu.garbage_collection": 0.2}).predicted_speedup == pytest.approx(1.25)
    assert only({"cpu.synchronization": 0.5}).predicted_speedup == pytest.approx(2.0)


def test_saving_in_the_background_cannot_beat_the_disk() -> None:
    """When saving takes 80 % of the time, it still takes 80 % of it in the background, and rarer saves are better."""
    much, little = only({"io.checkpoint_write": 0.8}), only({"io.checkpoint_write": 0.2})
    paces = {fix.title: fix.predicted_speedup for fix in much.fixes}
    assert paces["Save while training goes on"] == pytest.approx(1.25)
    assert much.fixes[0].title == "Save 77 times less often"
    assert much.predicted_speedup == paces["Save 77 times less often"] == pytest.approx(1 / (0.2 + 0.8 / 77))
    assert next(fix for fix in little.fixes if "goes on" in fix.title).predicted_speedup == pytest.approx(1.25)


def test_rarer_saves_and_logs_are_counted() -> None:
    found = only({"io.log_write": 0.5})
    assert found.fixes[0].title == "Log 19 times less often"
    assert found.predicted_speedup == pytest.approx(1 / (0.5 + 0.5 / 19))
    # 1 / 19 of the cost in the then shorter time: 0.5 / 19 / (0.5 + 0.5 / 19) = 0.05
    assert pytest.approx(0.05) == 0.5 / 19 / (0.5 + 0.5 / 19)


def test_a_lifted_quota_gives_no_more_than_the_cores() -> None:
    settings: dict[str, str | float] = {"quota_cores": 1.0, "affinity_cores": 2.0, "cores": 1.0}
    found = only({"cpu.throttled": 0.75}, settings=settings, numbers={"job_cores": 1.0})
    assert found.predicted_speedup == pytest.approx(2.0)
    assert "The quota is 1 core, while the job sees 2 cores" in found.fixes[0].why


@pytest.mark.parametrize("cause", ILL)
def test_the_users_own_line_and_path_are_named(cause: str) -> None:
    found = only(
        {cause: 0.4},
        lines={cause: (("train.py:41 augment", 0.83), ("train.py:12 <module>", 0.1))},
        paths={cause: (("file:/data/shard-1.bin", 0.99),)},
    )
    assert "train.py:41 augment" in found.summary
    assert "train.py:41 augment (83%)" in [evidence.value for evidence in found.evidence]
    assert "/data/shard-1.bin (99%)" in [evidence.value for evidence in found.evidence]


def test_a_path_is_named_where_no_line_is_known() -> None:
    found = only({"io.storage_read": 0.4}, paths={"io.storage_read": (("pipe", 0.5), ("file:/data/a.bin", 0.5))})
    assert "most of it on /data/a.bin" in found.summary


@pytest.mark.parametrize("cause", ILL)
def test_a_straggler_is_named_and_that_others_wait(cause: str) -> None:
    ranks = tuple(trainer(rank, data=0.5 if rank == 1 else 0.0) for rank in range(3))
    alone = only({cause: 0.4}, trainers=ranks, culprits={cause: (1,)})
    assert "it happens on rank 1" in alone.summary
    assert "wait for it" not in alone.summary
    waited = tuple(replace(one, waited_for={1: 0.3} if one.rank != 1 else {}) for one in ranks)
    found = only({cause: 0.4}, trainers=waited, culprits={cause: (1,)})
    assert found.ranks == (1,)
    assert "rank 1, and the other ranks wait for it" in found.summary


def test_a_cause_of_all_ranks_is_no_straggler() -> None:
    ranks = tuple(trainer(rank) for rank in range(2))
    found = only({"cpu.throttled": 0.4}, trainers=ranks, culprits={"cpu.throttled": (0, 1)})
    assert "wait for" not in found.summary
    assert found.ranks == (0, 1)


def test_two_stragglers_are_named() -> None:
    ranks = tuple(replace(trainer(rank), waited_for={1: 0.3} if rank == 2 else {}) for rank in range(4))
    found = only({"io.swap": 0.4}, trainers=ranks, culprits={"io.swap": (1, 3)})
    assert "ranks 1 and 3, and the other ranks wait for them" in found.summary


def test_a_single_trainer_has_no_ranks() -> None:
    assert only({"io.swap": 0.4}, culprits={"io.swap": (0,)}).ranks == ()


def test_rules_do_not_change_facts_and_repeat_themselves() -> None:
    given = case({"cpu.input_preprocessing": 0.4, "io.swap": 0.2}, trainers=(trainer(data=0.5, workers=3),))
    assert find(given) == find(given)


def test_every_number_is_in_the_table() -> None:
    lines = (DOCS / "evidence.md").read_text().splitlines()
    rows = [
        f"| `{name}` | {words.replace('{}', '…')} | {unit} | {probe} |"
        for name, (words, unit, probe) in METRICS.items()
    ]
    assert [row for row in rows if row not in lines] == []
    assert sum(line.startswith("| `") for line in lines) == len(rows)
