"""What a report says, and what it leaves to the JSON report."""

from dataclasses import replace

import pytest

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.cards import ShortPaths
from perfdoctor.reports.first_screen import changes_of
from perfdoctor.reports.outline import outline
from tests.builders import diagnoses

WHOLE = "/home/me/work/train.py:41 main"


def test_a_file_is_named_in_full_once() -> None:
    base = diagnoses.input_bound()
    finding = replace(
        base.findings[0],
        summary=f"It is at {WHOLE}.",
        evidence=(Evidence("where", f"{WHOLE} (60 %)", "", "stacks"), Evidence("where", WHOLE, "", "stacks")),
        fixes=(Fix(f"Make {WHOLE} cheaper", "It costs.", "pass"),),
    )
    report = outline(replace(base, verdict=replace(base.verdict, summary=f"At {WHOLE}."), findings=(finding,)))
    assert report.summary == f"At {WHOLE}."
    (card,) = report.cards
    assert card.summary == "It is at train.py:41 main."
    assert card.evidence == (("Where", "train.py:41 main (60 %)", "stacks"), ("", "train.py:41 main", "stacks"))
    assert card.changes[0].title == "Make train.py:41 main cheaper"


def test_files_of_the_same_name_keep_their_paths() -> None:
    texts = ["/a/data.py:1 get", "/b/data.py:2 get", "/a/train.py:3 main"]
    paths = ShortPaths(texts)
    assert [paths.shorten(text) for text in texts + texts] == [*texts, *texts[:2], "train.py:3 main"]


def test_only_paths_in_code_are_shortened() -> None:
    texts = ["/data/cats/1.jpg", "https://host/a/b.py:80", "dataset.py:41 get", "/a/b c/d.py:1"]
    paths = ShortPaths(texts)
    assert [paths.shorten(text) for text in texts + texts] == texts + texts


def test_what_the_verdict_says_its_finding_does_not_repeat() -> None:
    base = diagnoses.input_bound()
    said = replace(base, verdict=replace(base.verdict, summary=base.findings[0].summary))
    assert outline(said).cards[0].summary == ""
    assert outline(base).cards[0].summary == base.findings[0].summary


def test_settings_of_launchers_and_mounts_without_a_disk_are_left_to_json() -> None:
    settings = {
        "workers": 2.0, "mount./data": "nfs network", "mount./dev/shm": "tmpfs", "env.OMP_NUM_THREADS": "1",
        "env.TORCHELASTIC_RUN_ID": "x", "env.GROUP_RANK": "0",
    }  # fmt: skip
    job = {"pid": 7, "root_pid": 7, "stopped": "duration", "settings": settings}
    report = outline(replace(diagnoses.sound(), job=job))
    rows = dict(report.job_in_short)
    assert report.settings == (
        ("Loader workers per trainer", "2"), ("File system of /data", "nfs, over the network"),
        ("OMP_NUM_THREADS", "1"),
    )  # fmt: skip
    assert rows["Settings"] == (
        "Loader workers per trainer: 2; File system of /data: nfs, over the network; OMP_NUM_THREADS: 1"
    )
    assert rows["Watching ended"] == "when its time was up"
    assert "Top process" not in rows


def test_steps_that_only_a_trace_shows() -> None:
    spent = {"median_s": 0.03, "mean_s": 0.03, "share": 0.75}
    traced = {
        "count": 12, "median_s": 0.04, "mean_s": 0.04, "p95_s": 0.05, "phases": {"forward": spent}, "marked": False,
        "device": {"phases": {"forward": 0.02}},
        "lines": [{"line": "a.py:1 f", "share": 0.6}, {"line": "b.py:2 g", "share": 0.2}],
    }  # fmt: skip
    ((title, rows),) = outline(replace(diagnoses.sound(), steps={"profiled": traced})).steps
    assert title == "Its steps"
    assert rows == (
        ("Steps traced", "12"),
        ("Time per step", "40 ms in the median, 40 ms in the mean, 50 ms or less in 95%"),
        ("Forward", "30 ms a step, 75%; 20 ms on the device"),
        ("In functions of the job's own", "60% of a step: a.py:1 f"),
        ("", "20% of a step: b.py:2 g"),
    )


def test_steps_are_those_of_a_named_rank_and_of_the_straggler() -> None:
    def steps(backward: float) -> dict[str, object]:
        phases = {"backward": {"median_s": backward, "mean_s": backward, "share": backward / 0.04}}
        times = {"median_s": 0.04, "mean_s": 0.04, "p95_s": 0.04, "collector_s": 0.0, "outside_s": 0.0}
        return {"count": 60, "phases": phases, **times}

    base = diagnoses.straggler()
    ranks = tuple({**rank, "steps": steps(0.03 - 0.02 * rank["rank"])} for rank in base.ranks)
    told = outline(replace(base, ranks=ranks, steps=ranks[0]["steps"])).steps
    assert [title for title, _ in told] == ["Steps of rank 0, which waits for rank 1", "Steps of rank 1, the straggler"]
    assert [dict(rows)["Backward"] for _, rows in told] == ["30 ms a step, 75%", "10 ms a step, 25%"]

    verdict = replace(base.verdict, straggler_rank=None)
    ((title, _),) = outline(replace(base, verdict=verdict, ranks=ranks, steps=ranks[0]["steps"])).steps
    assert title == "Steps of rank 0"
    ((title, _),) = outline(replace(base, ranks=ranks[:1], steps=ranks[0]["steps"])).steps
    assert title == "Its steps"
    assert outline(replace(base, steps={})).steps == ()


def told(least: float, most: float) -> str:
    base = diagnoses.input_bound()
    fix = Fix("Do it", "It helps.", "do()", predicted_speedup=most, speedup_range=(least, most))
    finding = replace(base.findings[0], fixes=(base.findings[0].fixes[0], fix))
    return outline(replace(base, findings=(finding,))).headline.rpartition(", ")[2]


def test_a_headline_tells_the_gain_with_its_range() -> None:
    assert told(1.6, 2.1) == "1.6 to 2.1 times as fast if fixed"
    assert told(1.0, 2.5) == "up to 2.5 times as fast if fixed"
    assert told(2.5, 2.5) == "2.5 times as fast if fixed"


@pytest.mark.parametrize(("speedup", "beyond"), [(1.3, False), (1.7, True)])
def test_a_headline_says_that_a_change_frees_more_than_its_cause(speedup: float, beyond: bool) -> None:
    base = diagnoses.input_bound()
    fix = Fix("Do it", "It helps.", "do()", predicted_speedup=speedup, speedup_range=(1.0, speedup))
    finding = replace(base.findings[0], fixes=(fix,), share=0.24, predicted_speedup=speedup)
    verdict = replace(base.verdict, share=0.24, predicted_speedup=speedup)
    headline = outline(replace(base, verdict=verdict, findings=(finding,))).headline
    assert (
        "24% of the time, up to 1.7 times as fast with the first change, which frees other time" in headline
    ) is beyond
    assert ("if fixed" in headline) is not beyond


def test_what_equal_ranks_would_bring_is_no_range() -> None:
    base = diagnoses.sound()
    report = outline(replace(base, verdict=replace(base.verdict, predicted_speedup=1.25)))
    assert ", 1.2 times as fast if equal: 94%" in report.headline


def test_beside_unequal_ranks_no_change_of_another_kind_is_second() -> None:
    base = diagnoses.sound()
    fix = Fix("Let the arithmetic use 2 threads", "One is idle.", "pass", 1.5, (1.4, 1.6))
    findings = (replace(base.findings[0], fixes=(replace(fix, title="Give all ranks equal work"), fix)),)
    verdict = replace(base.verdict, predicted_speedup=1.25)
    report = outline(replace(base, verdict=verdict, findings=findings))
    assert (report.first, report.second) == ((0, 0), None)


def test_a_finding_of_a_part_of_a_cause_names_that_part() -> None:
    base = diagnoses.input_bound()
    finding = replace(base.findings[0], title="Drawing the indices of the next batch")
    report = outline(replace(base, findings=(finding, *base.findings[1:])))
    assert report.claim == "CPU bottleneck: drawing the indices of the next batch"
    assert report.cards[0].title == "Drawing the indices of the next batch"
    assert report.breakdown[0].title == "Drawing the indices of the next batch"


def test_work_that_ranks_have_more_of_than_others_is_no_good_news() -> None:
    base = diagnoses.sound()
    sound = outline(base).cards[0]
    unequal = outline(replace(base, verdict=replace(base.verdict, predicted_speedup=1.25))).cards[0]
    assert (sound.severity, sound.healthy) == ("no bottleneck", True)
    assert (unequal.severity, unequal.healthy) == ("unequal ranks", False)


@pytest.mark.parametrize(
    ("waits", "told"),
    [
        ({}, ""),
        ({1: 0.001}, ""),
        ({1: 0.52}, "waits 52% for rank 1"),
        ({1: 0.1, 3: 0.3}, "waits 40% for others, longest for rank 3"),
    ],
)
def test_a_rank_says_for_whom_it_waits(waits: dict[int, float], told: str) -> None:
    base = diagnoses.straggler()
    ranks = ({**base.ranks[0], "waits_for": waits}, *base.ranks[1:])
    assert [rank.waits for rank in outline(replace(base, ranks=ranks)).ranks] == [told, ""]


@pytest.mark.parametrize(("speedup", "told"), [(1.5, True), (1.1, False)])
def test_the_first_line_of_a_sound_job_says_what_would_make_it_much_faster(speedup: float, told: bool) -> None:
    base = diagnoses.sound()
    fix = Fix("Let the arithmetic use 2 threads", "One is idle.", "pass", speedup, (1.0, 1.9))
    headline = outline(replace(base, findings=(replace(base.findings[0], fixes=(fix,)),))).headline
    assert headline.startswith("No bottleneck found: ")
    assert (
        headline.endswith(
            "; to make it faster, let the arithmetic use 2 threads (likely 1.5, at most 1.9 times as fast)"
        )
        is told
    )


@pytest.mark.parametrize(("share", "told"), [(0.25, True), (0.4, False)])
def test_a_change_that_frees_more_than_all_of_the_bottleneck_is_in_the_first_line_and_second(
    share: float, told: bool
) -> None:
    base = diagnoses.input_bound()
    own = Fix("Start workers", "None is there.", "num_workers=2", 1 / (1 - share), (1.0, 1 / (1 - share)))
    other = Fix("Update all at once", "The optimizer takes half of it.", "fused=True", 1.5, (1.4, 1.6))
    findings = (
        replace(base.findings[0], share=share, fixes=(own, replace(own, title="Read less"))),
        replace(diagnoses.sound().findings[0], fixes=(other,)),
    )
    diagnosis = replace(base, verdict=replace(base.verdict, share=share), findings=findings)
    report = outline(diagnosis)
    assert (
        report.headline.endswith("; to make it faster than that, update all at once (1.4 to 1.6 times as fast)") is told
    )
    assert (report.first, report.second) == ((0, 0), (1, 0) if told else None)
    changes, _ = changes_of(diagnosis, report)
    assert [change.fix.title for change in changes].index("Update all at once") == (1 if told else 2)
