"""Arrows only go right: probes, recorder, recording, analysis, reports. Who may import whom, read from the source."""

import sys

import pytest

from tests.sources import Import, imports, modules, named, needed, reached

HEAVY = {"dask", "jinja2", "matplotlib", "numpy", "pandas", "rich", "scipy", "sklearn", "torch"}
# What a probe may know of perfdoctor: the words that it speaks in.
WORDS = (
    *("perfdoctor.samples", "perfdoctor.clock", "perfdoctor.timer"),
    *("perfdoctor.errors", "perfdoctor.probes"),
)
# What runs before and while a job is watched, in the process that watches. All else in perfdoctor/ lies right of the
# recording.
RECORDING_FOLDERS = ("perfdoctor.probes", "perfdoctor.job", "perfdoctor.commands")
RECORDING_SIDE = {
    "perfdoctor",
    "perfdoctor.__main__",
    "perfdoctor.afterwards",
    "perfdoctor.clock",
    "perfdoctor.errors",
    "perfdoctor.governor",
    "perfdoctor.inside",
    "perfdoctor.lightning",
    "perfdoctor.outputs",
    "perfdoctor.recorder",
    "perfdoctor.recording",
    "perfdoctor.recording_file",
    "perfdoctor.samples",
    "perfdoctor.sidecar",
    "perfdoctor.timer",
    "perfdoctor.transformers",
    "perfdoctor.watch",
}

# How the analysis of a recording goes on: whatever is in one of these folders knows only what stands before it.
ANALYSIS = ("perfdoctor.scene", "perfdoctor.evidence", "perfdoctor.breakdown", "perfdoctor.rules", "perfdoctor.examine")

# What looks at the job, and what leads there.
JOB = ("psutil", "perfdoctor.job", "perfdoctor.recorder", "perfdoctor.probes", "perfdoctor.commands")
# What may be imported in the job's own process beside the standard library: the job has it already.
IN_THE_JOB_TOO = {"torch"}
# Who reads tables, and leads there.
TABLES = ("perfdoctor.operations",)
# What a report may know.
DIAGNOSIS = ("perfdoctor.diagnosis", "perfdoctor.causes", "perfdoctor.errors", "perfdoctor.clock", "perfdoctor.reports")


def is_probe(name: str) -> bool:
    return within(name, "perfdoctor.probes")


def is_inside(name: str) -> bool:
    """It runs in the user's training process."""
    return within(name, "perfdoctor.probes.inside", "perfdoctor.inside", "perfdoctor.timer")


def is_report(name: str) -> bool:
    return within(name, "perfdoctor.reports")


def is_left(name: str) -> bool:
    return name in RECORDING_SIDE or within(name, *RECORDING_FOLDERS)


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


PROBES = [name for name in modules() if is_probe(name)]
REPORTS = [name for name in modules() if is_report(name)]
LEFT = [name for name in modules() if is_left(name)]
RIGHT = [name for name in modules() if not is_left(name)]


def complaints(name: str, wrong: "list[Import]") -> list[str]:
    return [f"{modules()[name].path}:{one.line} imports {one.name}" for one in wrong]


def test_all_sides_are_there() -> None:
    assert min(len(PROBES), len(REPORTS), len(RIGHT)) > 5
    assert modules().keys() >= RECORDING_SIDE


@pytest.mark.parametrize("name", PROBES)
def test_probes_know_only_their_words_and_light_libraries(name: str) -> None:
    """Wherever the import stands: a probe runs beside or inside the user's job."""
    allowed = sys.stdlib_module_names | (IN_THE_JOB_TOO if is_inside(name) else {"psutil", "pynvml"})
    wrong = [
        one
        for one in imports(modules()[name])
        if not (within(one.name, *WORDS) if within(one.name, "perfdoctor") else one.name.split(".")[0] in allowed)
        and one.name != "perfdoctor"
    ]
    assert complaints(name, wrong) == []


@pytest.mark.parametrize("name", [name for name in modules() if is_inside(name)])
def test_what_runs_in_the_job_is_light(name: str) -> None:
    """Nothing that the job has not loaded itself, and torch only inside functions."""
    wrong = []
    for other in sorted({name, *reached(name, needed)}):
        found = [one for one in imports(modules()[other]) if one.at_start and not within(one.name, "perfdoctor")]
        wrong += complaints(other, [one for one in found if one.name.split(".")[0] not in sys.stdlib_module_names])
    assert wrong == []


@pytest.mark.parametrize("name", [name for name in PROBES if name != "perfdoctor.probes"])
def test_nvml_is_loaded_only_when_it_is_used(name: str) -> None:
    wrong = [one for one in imports(modules()[name]) if one.at_start and within(one.name, "pynvml")]
    assert complaints(name, wrong) == []


@pytest.mark.parametrize("name", LEFT)
def test_recording_side_starts_without_heavy_libraries(name: str) -> None:
    wrong = []
    for other in sorted(reached(name, needed)):
        found = [one for one in imports(modules()[other]) if one.at_start and one.name.split(".")[0] in HEAVY]
        wrong += complaints(other, found)
    assert wrong == []


@pytest.mark.parametrize("name", LEFT)
def test_recording_side_starts_without_the_analysis(name: str) -> None:
    """But for the words that both sides speak: what a diagnosis is, and which causes there are."""
    words = {"perfdoctor.diagnosis", "perfdoctor.causes"}
    assert sorted(other for other in reached(name, needed) if other in RIGHT and other not in words) == []


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_right_of_the_recording_touches_the_job(name: str) -> None:
    wrong = [
        one
        for one in imports(modules()[name])
        if within(one.name, *JOB)
    ]
    assert complaints(name, wrong) == []


@pytest.mark.parametrize("name", [name for name in RIGHT if within(name, *ANALYSIS)])
def test_the_analysis_goes_right(name: str) -> None:
    place = next(number for number, folder in enumerate(ANALYSIS) if within(name, folder))
    assert sorted(other for other in reached(name, needed) if within(other, *ANALYSIS[place + 1 :])) == []


@pytest.mark.parametrize("name", REPORTS)
def test_reports_know_a_diagnosis_and_nothing_else(name: str) -> None:
    wrong = [
        one
        for one in imports(modules()[name])
        if within(one.name, "perfdoctor") and one.name != "perfdoctor" and not within(one.name, *DIAGNOSIS)
    ]
    assert complaints(name, wrong) == []


@pytest.mark.parametrize("name", [name for name in RIGHT if not within(name, *TABLES)])
def test_pandas_is_for_tables_of_operations_alone(name: str) -> None:
    """Loading it takes a third of a second of CPU time beside the job, and three times the memory of a small trace."""
    wrong = []
    for other in sorted({name, *reached(name, needed)}):
        found = [one for one in imports(modules()[other]) if one.at_start and within(one.name, "pandas")]
        wrong += complaints(other, found)
    assert wrong == []


def test_no_module_needs_itself() -> None:
    assert [name for name in modules() if name in reached(name, named)] == []
