"""Arrows only go right: probes, capture, recording, analysis, reports. Who may import whom, read from the source."""

import sys
from graphlib import TopologicalSorter

import pytest

from tests.unit.project.sources import Import, imports, modules, named, needed, reached

HEAVY = {"dask", "jinja2", "opentelemetry", "numpy", "pandas", "rich", "scipy", "sklearn", "torch"}
# What all sides speak: causes, diagnoses and other results, and errors.
WORDS = {"perfdoctor", "causes", "diagnosis", "messages", "results", "errors"}
# Whom a folder may import, besides itself and the words; a loose module stands for itself.
MAY_KNOW = {
    "recording": set(),
    "probes": {"recording"},
    "api": {"probes"},
    "lightning": {"api"},
    "transformers": {"api"},
    "capture": {"probes", "recording", "knowledge"},
    "treat": {"capture", "probes", "recording", "knowledge", "compare"},
    "live": {"recording", "reports", "exports"},
    "monitor": {"capture", "probes", "recording", "knowledge", "timeline", "compare", "exports", "live"},
    "commands": {"capture", "probes", "recording", "reports", "treat", "compare", "exports", "monitor"},
    "__main__": set(),
    "knowledge": set(),
    "timeline": {"recording", "knowledge"},
    "metrics": {"recording", "knowledge", "timeline"},
    "attribution": {"recording", "knowledge", "timeline", "metrics"},
    "traces": {"recording", "knowledge", "timeline", "metrics", "attribution"},
    "operations": {"recording", "knowledge", "timeline", "metrics", "attribution", "traces"},
    "rules": {"knowledge", "timeline", "metrics", "attribution"},
    "stuck": {"recording", "knowledge", "timeline"},
    "compare": {"knowledge"},
    "cluster": {"recording", "knowledge", "timeline", "metrics", "attribution", "traces", "rules", "analysis"},
    "analysis": {
        "recording",
        "knowledge",
        "timeline",
        "metrics",
        "attribution",
        "traces",
        "operations",
        "rules",
        "stuck",
    },
    "exports": {"recording", "knowledge", "timeline"},
    "reports": set(),
}
# What runs while the job runs, beside it or in it.
BESIDE_THE_JOB = (
    "probes",
    "api",
    "lightning",
    "transformers",
    "capture",
    "treat",
    "live",
    "monitor",
    "commands",
    "recording",
    "__main__",
)
# What looks at the job.
LOOKS_AT_THE_JOB = ("probes", "capture", "treat", "monitor", "commands")
# What runs in the user's training process.
IN_THE_JOB = ("perfdoctor.probes.inside", "perfdoctor.probes.treated", "perfdoctor.api")
# What reads tables of operations, which are given as such.
OPERATIONS = ("perfdoctor.operations", "perfdoctor.analysis.from_operations")
# What may be imported there beside the standard library: the job has it already.
IN_THE_JOB_TOO = {"torch"}


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def folder(name: str) -> str:
    """The folder of perfdoctor's that a module lies in, or its own name where it lies in none."""
    return (*name.split("."), "")[1] or "perfdoctor"


OURS = [name for name in modules() if folder(name) not in WORDS]
LEFT = [name for name in OURS if folder(name) in BESIDE_THE_JOB]
RIGHT = [name for name in OURS if folder(name) not in BESIDE_THE_JOB]
PROBES = [name for name in OURS if folder(name) == "probes"]
INSIDE = [name for name in OURS if within(name, *IN_THE_JOB)]


def complaints(name: str, wrong: "list[Import]") -> list[str]:
    return [f"{modules()[name].path}:{one.line} imports {one.name}" for one in wrong]


def test_all_sides_are_there() -> None:
    assert min(len(PROBES), len(INSIDE), len(LEFT), len(RIGHT)) > 5
    assert {folder(name) for name in modules()} == MAY_KNOW.keys() | WORDS


@pytest.mark.parametrize("name", OURS)
def test_arrows_go_right(name: str) -> None:
    """Of the recording and all that comes after it wherever the import stands; a command loads what it needs late."""
    known = {folder(name), *WORDS, *MAY_KNOW[folder(name)]}
    anywhere = name in RIGHT or folder(name) in ("probes", "recording")
    ours = [one for one in imports(modules()[name]) if one.name in modules() and (one.at_start or anywhere)]
    assert complaints(name, [one for one in ours if folder(one.name) not in known]) == []


@pytest.mark.parametrize("name", LEFT)
def test_what_watches_starts_without_heavy_libraries(name: str) -> None:
    wrong = []
    for other in sorted(reached(name, needed)):
        found = [one for one in imports(modules()[other]) if one.at_start and one.name.split(".")[0] in HEAVY]
        wrong += complaints(other, found)
    assert wrong == []


@pytest.mark.parametrize("name", PROBES)
def test_probes_know_only_the_recording_and_light_libraries(name: str) -> None:
    """Wherever the import stands: a probe runs beside or inside the user's job."""
    allowed = sys.stdlib_module_names | (IN_THE_JOB_TOO if name in INSIDE else {"psutil", "pynvml", "amdsmi"})
    wrong = [
        one
        for one in imports(modules()[name])
        if (
            folder(one.name) not in ("probes", "recording", "errors", "perfdoctor")
            if within(one.name, "perfdoctor")
            else one.name.split(".")[0] not in allowed
        )
        and one.name != "perfdoctor.__version__"
    ]
    assert complaints(name, wrong) == []


@pytest.mark.parametrize("name", INSIDE)
def test_what_runs_in_the_job_is_light(name: str) -> None:
    """Nothing that the job has not loaded itself, and torch only inside functions."""
    wrong = []
    for other in sorted({name, *reached(name, needed)}):
        found = [one for one in imports(modules()[other]) if one.at_start and not within(one.name, "perfdoctor")]
        wrong += complaints(other, [one for one in found if one.name.split(".")[0] not in sys.stdlib_module_names])
    assert wrong == []


@pytest.mark.parametrize("name", [name for name in PROBES if name != "perfdoctor.probes"])
def test_libraries_of_drivers_are_loaded_only_when_they_are_used(name: str) -> None:
    wrong = [one for one in imports(modules()[name]) if one.at_start and within(one.name, "pynvml", "amdsmi")]
    assert complaints(name, wrong) == []


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_right_of_the_recording_touches_the_job(name: str) -> None:
    """Wherever the import stands."""
    wrong = [
        one
        for one in imports(modules()[name])
        if within(one.name, "psutil") or (within(one.name, "perfdoctor") and folder(one.name) in LOOKS_AT_THE_JOB)
    ]
    assert complaints(name, wrong) == []


@pytest.mark.parametrize("name", [name for name in OURS if not within(name, *OPERATIONS)])
def test_pandas_is_loaded_only_when_it_is_asked_for(name: str) -> None:
    """Loading it takes a third of a second of CPU time beside the job, and three times the memory of a small trace."""
    wrong = []
    for other in sorted({name, *reached(name, needed)}):
        found = [one for one in imports(modules()[other]) if one.at_start and within(one.name, "pandas")]
        wrong += complaints(other, found)
    assert wrong == []


def test_no_module_needs_itself() -> None:
    TopologicalSorter({name: named(name) for name in modules()}).prepare()  # raises CycleError, which names them
