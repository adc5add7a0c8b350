"""Jobs of all shapes: launchers, ranks, workers that come and go, many threads, very short and very long steps."""

import json
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from perfdoctor.analysis.profiled import read_profiles
from perfdoctor.analysis.recorded_case import gather_case
from perfdoctor.attribution.attribute import attribute
from perfdoctor.recording.reader import Recording
from perfdoctor.timeline.job import JobTimeline
from tests.files import TARGETS
from tests.processes.attaching import TRAINING, Answer, Started, is_a_diagnosis, job, perfdoctor


def watch(started: Started, folder: Path, *, pid: int | None = None, duration: float = 3) -> Answer:
    answer = perfdoctor("attach", pid or started.pid, "--duration", duration, "--json", folder / "a.json")
    assert "Traceback" not in answer.err
    is_a_diagnosis(answer.told)
    assert started.process.poll() is None
    return answer


def test_a_worker_stands_for_its_trainer(tmp_path: Path) -> None:
    with job(*TRAINING, "--workers", "2", "--wait-ms", "2", ready="worker") as training:
        worker = int(training.lines[-1].split()[1])
        training.wait_for("ready")
        answer = watch(training, tmp_path, pid=worker)
    assert answer.status == 0, answer.err
    assert answer.told["job"]["pid"] == worker
    assert answer.told["job"]["root_pid"] == training.pid
    assert [(rank["pid"], rank["workers"]) for rank in answer.told["ranks"]] == [(training.pid, 2)]
    assert answer.told["verdict"]["cause"] == "cpu.input_preprocessing"


def test_a_script_that_runs_the_trainer_stands_for_it(tmp_path: Path) -> None:
    with job("bash", "-c", f"{' '.join(TRAINING)} --item-ms 1; true") as shell:
        answer = watch(shell, tmp_path)
    assert answer.status == 0, answer.err
    assert answer.told["job"]["root_pid"] == shell.pid
    assert len(answer.told["ranks"]) == 1
    assert answer.told["ranks"][0]["pid"] != shell.pid


def test_torchrun_and_each_of_its_ranks_stand_for_the_job(tmp_path: Path) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    with job(*launcher, str(TARGETS / "job_ranks.py"), ready="rank") as ranks:
        rank = int(ranks.lines[-1].split()[1])
        known = watch(ranks, tmp_path)
        by_rank = watch(ranks, tmp_path, pid=rank)
    for answer in (known, by_rank):
        assert answer.status == 0, answer.err
        assert answer.told["job"]["root_pid"] == ranks.pid
        assert sorted(entry["rank"] for entry in answer.told["ranks"]) == [0, 1]
        assert answer.told["job"]["world_size"] == 2


def test_spawned_workers_belong_to_the_job(tmp_path: Path) -> None:
    with job(*TRAINING, "--workers", "2", "--start", "spawn", "--item-ms", "2") as training:
        answer = watch(training, tmp_path)
    assert [(rank["pid"], rank["workers"]) for rank in answer.told["ranks"]] == [(training.pid, 2)]


def test_sixteen_workers(tmp_path: Path) -> None:
    with job(*TRAINING, "--workers", "16", "--batch", "8", "--pause-ms", "50") as training:
        answer = watch(training, tmp_path)
    assert answer.told["ranks"][0]["workers"] == 16
    assert answer.told["job"]["processes"] >= 17


def test_workers_that_come_and_go(tmp_path: Path) -> None:
    with job(*TRAINING, "--workers", "2", "--items", "128", "--item-ms", "0.2") as training:
        answer = watch(training, tmp_path)
    assert answer.status == 0, answer.err
    assert answer.told["job"]["processes"] > 5


def test_sixty_four_threads(tmp_path: Path) -> None:
    with job(*TRAINING, "--idle-threads", "64", "--wait-ms", "0.5") as training:
        assert psutil.Process(training.pid).num_threads() >= 65
        answer = watch(training, tmp_path)
    assert answer.told["verdict"]["cause"] == "cpu.input_preprocessing"
    # The budget is 0.05 of a core once the start is over; this short a look is mostly start.
    assert answer.told["overhead"]["cpu_cores"] < 0.5


def test_steps_of_a_millisecond(tmp_path: Path) -> None:
    with job(*TRAINING, "--batch", "2", "--hidden", "16") as training:
        answer = watch(training, tmp_path)
    assert answer.status == 0, answer.err


def test_steps_that_take_longer_than_we_watch(tmp_path: Path) -> None:
    """One batch takes ten seconds, nearly all of them in the data set."""
    with job(*TRAINING, "--batch", "100", "--wait-ms", "80", "--item-ms", "20", ready="") as training:
        assert _uses_torch(training.pid)
        answer = watch(training, tmp_path, duration=4)
    assert answer.told["verdict"]["cause"] == "cpu.input_preprocessing", answer.told["verdict"]


def test_a_log_that_goes_over_a_connection_is_no_reading(tmp_path: Path) -> None:
    """Each step sends to a collector that is slower, in a process of its own; nothing is received."""
    kept = tmp_path / "a.recording"
    with job(sys.executable, str(TARGETS / "job_logging.py")) as training:
        time.sleep(3)  # until the buffers between them are full
        answer = perfdoctor(
            "attach", training.pid, "--duration", "6", "--json", tmp_path / "a.json", "--recording", kept
        )
    assert answer.told["verdict"]["cause"] == "io.log_write", answer.told["breakdown"]
    shares = {part["cause"]: part["share"] for part in answer.told["breakdown"]}
    assert shares.get("io.network_read", 0.0) < 0.3 * shares["io.log_write"], shares
    (logged,) = (found for found in answer.told["findings"] if found["cause"] == "io.log_write")
    assert "Let whoever reads the log keep up" in [fix["title"] for fix in logged["fixes"]]
    with closing(Recording.open(kept)) as recording:
        timeline = JobTimeline(recording)
        (trainer,) = gather_case(timeline, attribute(timeline), read_profiles(timeline.profiles)).trainers
    assert (trainer.workers, trainer.helpers) == (0, 1)


def _uses_torch(pid: int) -> bool:
    from perfdoctor.probes.readers.process import uses_torch
    from tests.processes.attaching import until

    return until(lambda: uses_torch(pid) and psutil.Process(pid).cpu_times().user > 1.5, 20)


@pytest.mark.parametrize("name", [b"caf\xe9.bin", b'"<script>x.bin', b"new\nline.bin"])
def test_odd_file_names_are_data(name: bytes, tmp_path: Path) -> None:
    """Names with invalid UTF-8, markup and line breaks, in the arguments and among the files that are read."""
    odd = bytes(tmp_path) + b"/" + name
    Path(odd.decode(errors="surrogateescape")).write_bytes(b"x" * (1 << 20))
    script = bytes(tmp_path) + b"/<b>" + name + b".py"
    Path(script.decode(errors="surrogateescape")).write_text(Path(TRAINING[1]).read_text())
    command = [TRAINING[0].encode(), script, b"--read", odd, b"--item-ms", b"0.2"]
    with job(*command) as training:
        page, told = tmp_path / "a.html", tmp_path / "a.json"
        answer = perfdoctor("attach", training.pid, "--duration", "3", "--json", told, "--report", page)
    assert answer.status == 0, answer.err
    assert "Traceback" not in answer.err
    is_a_diagnosis(json.loads(told.read_bytes().decode("utf-8")))
    text = page.read_bytes().decode("utf-8")
    assert "<script>x.bin" not in text
    assert "<b>" + name.decode(errors="replace") not in text


def test_waiting_for_a_thread_that_logs_is_logging(tmp_path: Path) -> None:
    with job(sys.executable, str(TARGETS / "job_logging.py"), "queue") as training:
        answer = watch(training, tmp_path, duration=4)
    assert answer.told["verdict"]["cause"] == "io.log_write", answer.told["breakdown"]


def test_a_worker_that_waits_for_a_process_of_its_own_is_not_handing_over(tmp_path: Path) -> None:
    with job(*TRAINING, "--workers", "1", "--decoder-ms", "2") as training:
        answer = watch(training, tmp_path)
    verdict = answer.told["verdict"]
    assert verdict["cause"] == "cpu.input_preprocessing"
    assert verdict["share"] > 0.5
    assert "job_training.py" in verdict["summary"]


@pytest.mark.parametrize("width", [128, 1024])
def test_what_hooks_of_the_model_compute_prepares_no_input(tmp_path: Path, width: int) -> None:
    with job(sys.executable, str(TARGETS / "measuring_hooks.py"), str(width)) as training:
        answer = watch(training, tmp_path, duration=5)
    shares = {part["cause"]: part["share"] for part in answer.told["breakdown"]}
    with_a_core = 1 - shares.get("cpu.contention", 0.0)  # neighbours take the rest
    assert shares["cpu.python_overhead"] > 0.1 * with_a_core, shares
    assert shares.get("cpu.input_preprocessing", 0.0) < 0.1, shares


@pytest.mark.parametrize(("what", "cause"), [("metrics", "io.log_write"), ("weights", "io.checkpoint_write")])
def test_many_small_writes_are_a_log_however_much_they_are(what: str, cause: str) -> None:
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as folder,  # /tmp may live in memory, where syncing costs nothing
        job(sys.executable, str(TARGETS / "job_tracking.py"), what, folder) as training,
    ):
        answer = watch(training, Path(folder), duration=5)
    shares = {part["cause"]: part["share"] for part in answer.told["breakdown"]}
    assert max(shares, key=lambda name: shares[name] if name.startswith("io.") else 0.0) == cause
    assert shares[cause] > 0.05
