"""The start hook on real torch, in a process of its own: what it changes, what it tells, and what it leaves alone."""

import json
import multiprocessing
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perfdoctor import causes
from perfdoctor.diagnosis import CauseShare, Diagnosis, Verdict
from perfdoctor.probes import treated
from perfdoctor.probes.treated import notes
from perfdoctor.probes.treated.sitecustomize import SETTINGS
from perfdoctor.treat.situation import Situation
from perfdoctor.treat.treatments import choose
from tests.files import TARGETS
from tests.processes.attaching import needs_two_cores

# The classes of loader workers in multiprocessing.context, by start method.
STARTED = {"fork": "ForkProcess", "spawn": "SpawnProcess", "forkserver": "ForkServerProcess"}
HOOK = Path(treated.__path__[0])
JOB = "treated_training.py"


@dataclass
class Seen:
    """A job under the hook.

    Attributes:
        told: by the job itself.
        events: that the hook has written: kind, time, value.
    """

    told: dict[str, Any]
    facts: list[dict[str, Any]]
    events: list[tuple[int, int, float]]

    def kind(self, kind: str) -> list[dict[str, Any]]:
        return [fact for fact in self.facts if fact["kind"] == kind]

    def values(self, kind: int) -> list[float]:
        return [value for found, _, value in self.events if found == kind]


def run(folder: Path, changes: dict[str, Any], *arguments: object, path: str = "") -> Seen:
    """Runs the job in a folder."""
    (folder / JOB).write_text((TARGETS / JOB).read_text())
    told = folder / "told"
    told.mkdir()
    settings = {"folder": str(told), "root": str(folder), "original": str(folder), "saves": str(folder / "aside")}
    environment = {
        **os.environ,
        SETTINGS: json.dumps({**settings, "changes": changes}),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(HOOK), path))),
    }
    done = subprocess.run(
        [sys.executable, JOB, "--steps", "16", *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = [json.loads(line) for file in told.glob("*.facts") for line in file.read_text().splitlines()]
    events = [event for file in told.glob("*.events") for event in notes.RECORD.iter_unpack(file.read_bytes())]
    return Seen(json.loads(done.stdout), facts, events)


def test_without_changes_it_only_watches(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os; os.environ['USERS_OWN'] = 'ran'")
    seen = run(tmp_path, {}, "--objects", 10, path=str(own))
    assert seen.told["users_own"] == "ran"
    assert str(HOOK) not in seen.told["path"]
    assert (seen.told["workers"], seen.told["fused"], seen.told["threads"]) == (0, None, 2)
    assert seen.told["frozen"] == 0
    # A process without a rank; a step and a batch for each pass; the losses are the job's own, to the last bit.
    assert seen.values(notes.PROCESS) == [-1]
    assert len(seen.values(notes.STEP)) == len(seen.values(notes.BATCH)) == 16
    assert seen.values(notes.LOSS) == seen.told["losses"]
    times = [time for _, time, _ in seen.events[1:]]
    assert times == sorted(times)
    lines = (tmp_path / JOB).read_text().splitlines()
    for kind, text in ("loader", "DataLoader("), ("optimizer", "Adam("), ("collect", "gc.collect()"):
        (fact,) = seen.kind(kind)
        assert fact["file"] == JOB
        assert text in lines[fact["line"] - 1]
    assert seen.kind("optimizer")[0]["kernels"]
    assert seen.kind("loader")[0]["method"] == multiprocessing.get_all_start_methods()[0]
    assert seen.kind("loader")[0]["importable"]
    assert [fact["device"] for fact in seen.kind("loss")] == ["cpu"]
    assert not seen.kind("applied")


@pytest.mark.parametrize(("side", "workers"), [("fewer", 0), ("more", 1)])
def test_a_loader_without_workers_gets_none_where_others_get_fewer(side: str, workers: int, tmp_path: Path) -> None:
    seen = run(tmp_path, {"loader": {"num_workers": 1}, "workers": side}, "--objects", 10)
    assert seen.told["workers"] == workers
    assert [fact["change"] for fact in seen.kind("applied")] == ["loader", "workers"] * workers


def test_another_number_of_workers_counts_as_tried(tmp_path: Path) -> None:
    plain = run(tmp_path, {}, "--objects", 10)
    breakdown = (CauseShare(causes.INPUT_PREPROCESSING, 0.6),)
    slow = Diagnosis("0", Verdict(None, None, 0, 0, 1, None, "", ""), breakdown, (), ({},))
    tried = [one for one in choose(Situation(slow, plain.facts, {})) if "workers" in one.change.settings]
    assert tried
    for number, treatment in enumerate(tried):
        (folder := tmp_path / str(number)).mkdir()
        seen = run(folder, dict(treatment.change.settings))
        assert set(treatment.change.settings) <= {fact["change"] for fact in seen.kind("applied")}
        assert seen.told["workers"] > 0


def test_all_that_is_wanted_is_changed(tmp_path: Path) -> None:
    changes = {
        "loader": {"num_workers": 1, "persistent_workers": True},
        "optimizer": {"fused": True},
        "threads": 1,
        "gc": [50_000, 20, 20],
        "collect_every": 100,
        "modules": "channels_last",
        "flags": {"backends.cudnn.benchmark": True},
        "matmul_precision": "high",
        "sharing": "file_system",
    }
    seen = run(tmp_path, changes, "--objects", 10)
    told = seen.told
    assert (told["workers"], told["persistent"], told["fused"], told["threads"]) == (1, True, True, 1)
    assert told["frozen"] > 1000
    assert told["threshold"] == [50_000, 20, 20]
    assert told["channels_last"]
    assert told["call_restored"]
    assert {fact["change"] for fact in seen.kind("applied")} == changes.keys()


def test_kept_batches_are_given_again_and_epochs_stay_as_long(tmp_path: Path) -> None:
    script = "\n".join(
        (
            "import json, torch",
            "rows = torch.arange(20.)",
            "loader = torch.utils.data.DataLoader(rows, batch_size=2, shuffle=False)",
            "print(json.dumps([[batch[0].item() for batch in loader] for _ in range(2)]))",
        )
    )
    (tmp_path / "told").mkdir()
    settings = {name: str(tmp_path / "told") for name in ("folder", "root", "original", "saves")}
    environment = {
        **os.environ,
        SETTINGS: json.dumps({**settings, "changes": {"cached_batches": True}}),
        "PYTHONPATH": str(HOOK),
    }
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    again = [0.0, 2.0, 4.0, 6.0, 0.0, 2.0, 4.0, 6.0, 0.0, 2.0]
    assert json.loads(done.stdout) == [again, again]


@needs_two_cores
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_trainer_and_workers_are_bound_to_their_cores(tmp_path: Path, method: str) -> None:
    own, others = sorted(os.sched_getaffinity(0))[:2]
    loader = {"num_workers": 1, "multiprocessing_context": method}
    seen = run(tmp_path, {"loader": loader, "affinity": [[[own], [others]]]}, "--tell-cores", tmp_path / "worker")
    assert seen.told["cores"] == [own]
    worker = json.loads((tmp_path / "worker").read_text())
    assert (worker["cores"], worker["method"]) == ([others], STARTED[method])
    assert {fact["change"] for fact in seen.kind("applied")} == {"loader", "affinity"}


def test_a_fork_server_has_torch_before_it_forks(tmp_path: Path) -> None:
    loader = {"num_workers": 1, "multiprocessing_context": "forkserver"}
    changes = {"loader": loader, "preload": ["__main__", "torch"]}
    seen = run(tmp_path, changes, "--tell-cores", tmp_path / "worker")
    worker = json.loads((tmp_path / "worker").read_text())
    assert (worker["method"], worker["parent has torch"]) == (STARTED["forkserver"], True)
    assert {fact["change"] for fact in seen.kind("applied")} == changes.keys()


def test_cores_that_a_job_may_not_use_are_left_alone(tmp_path: Path) -> None:
    seen = run(tmp_path, {"affinity": [[[max(os.sched_getaffinity(0)) + 1], []]]})
    assert seen.told["cores"] == sorted(os.sched_getaffinity(0))
    assert not seen.kind("applied")


def test_saves_to_other_places_are_taken_aside_and_found_there(tmp_path: Path) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere" / "model.pt"
    elsewhere.parent.mkdir()
    seen = run(tmp_path, {}, "--save", elsewhere)
    assert not elsewhere.exists()
    assert (tmp_path / "aside" / str(elsewhere).lstrip("/")).stat().st_size > 1000
    assert [fact["path"] for fact in seen.kind("aside")] == [str(elsewhere)]


def test_saves_into_the_job_s_own_folder_stay_where_they_are(tmp_path: Path) -> None:
    seen = run(tmp_path, {}, "--save", "model.pt")
    assert (tmp_path / "model.pt").exists()
    assert not seen.kind("aside")
    assert seen.kind("save")
