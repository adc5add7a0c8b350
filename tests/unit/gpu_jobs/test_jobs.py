"""Simulated jobs: how fast they go, what is seen of them, and that a seed always gives the same job."""

import ast
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from perfdoctor import Recording, examine
from perfdoctor.causes import CAUSES
from perfdoctor.recording.schema import CodeSample, InterpreterSample, StackSegment, Symbol, ThreadSample, ThreadSeen
from tests.files import ROOT
from tests.gpu_jobs.device import A100, A100_PCIE, H100, Use
from tests.gpu_jobs.host import Cores
from tests.gpu_jobs.job import Churn, Clocks, Copy, Exchange, Host, Job, Kernels, Step, Unsure, Watch
from tests.gpu_jobs.loader import Input
from tests.gpu_jobs.planting import PLANTS, random_job
from tests.gpu_jobs.simulate import FIRST, Run, share_of, simulate
from tests.gpu_jobs.watch import record

BUSY = Use(sm=0.9, tensor=0.5, dram=0.4)
# 100 ms of work for the GPU, a fifth of it for the host.
STEP = Step(
    Kernels(300, 100, 20, BUSY),
    Kernels(690, 100, 20, BUSY),
    Kernels(10, 100, 20, BUSY),
    input=Input(2, 20.0),
    item_every=0,
)
SECONDS = Watch(seconds=6.0)
SOUND = Job((STEP,), H100, watch=SECONDS)


def job(**changes: object) -> Job:
    return replace(SOUND, steps=(replace(STEP, **changes),))


class Seen:
    """The recording of a run, read."""

    def __init__(self, run: Run, folder: Path) -> None:
        with Recording.open(record(run, folder / "job.perfdoctor")) as recording:
            self.samples = recording.rows(ThreadSample)
            self.names = {thread.tid: thread.name for thread in recording.rows(ThreadSeen)}
            self.series = recording.series
            self.gil = Counter(sample.gil_tid for sample in recording.rows(InterpreterSample))
            self.stacks = len(recording.rows(StackSegment))
            named = {(symbol.image, symbol.offset): symbol.symbol for symbol in recording.rows(Symbol)}
            self.code = [
                (sample.tid, sample.image, named.get((sample.image, sample.offset), ""))
                for sample in recording.rows(CodeSample)
            ]

    def states(self, tid: int) -> Counter[tuple[str, str | None]]:
        return Counter((sample.state, sample.syscall) for sample in self.samples if sample.tid == tid)

    def cores(self, tid: int) -> tuple[float, float]:
        """Time on a core and in a run queue, of the time watched."""
        own = [sample for sample in self.samples if sample.tid == tid]
        span = own[-1].time_ns - own[0].time_ns
        return (own[-1].run_ns - own[0].run_ns) / span, (own[-1].delay_ns - own[0].delay_ns) / span


def test_a_sound_job_goes_as_fast_as_its_gpu() -> None:
    assert simulate(SOUND).pace == pytest.approx(10, rel=0.01)


def test_its_host_spins_in_the_driver_at_a_whole_core_without_system_calls(tmp_path: Path) -> None:
    """As in the recording of a torch job on a B200: R, 99.8 % of a core, the stack's end in libcuda and the vdso."""
    seen = Seen(simulate(job(item_every=1)), tmp_path)
    main, autograd = FIRST, FIRST + 31
    run, _ = seen.cores(main)
    # The rest is the backward pass, which it sleeps through until everything is launched.
    assert run > 0.6
    assert {call for _, call in seen.states(main)} == {None, "futex"}
    images = Counter(image.startswith(("libcuda", "[vdso]")) for tid, image, _ in seen.code if tid == main)
    assert images[True] / images.total() > 0.8
    assert seen.names[autograd] == "pt_autograd_0"
    assert not any(symbol for _, image, symbol in seen.code if image == "[vdso]")


def test_main_sleeps_while_the_autograd_thread_runs_backward(tmp_path: Path) -> None:
    launch_bound = job(forward=Kernels(1000, 5, 20, BUSY), backward=Kernels(3000, 5, 20, BUSY), input=Input(2, 1.0))
    run = simulate(launch_bound)
    assert run.pace == pytest.approx(1000 / 80, rel=0.05)
    seen = Seen(run, tmp_path)
    states = seen.states(FIRST)
    assert states["S", "futex"] / states.total() == pytest.approx(0.75, abs=0.04)
    assert seen.cores(FIRST + 31)[0] == pytest.approx(0.75, abs=0.04)


def test_a_launch_bound_job_reads_as_one_did_on_an_a100(tmp_path: Path) -> None:
    """Measured: a core at 99.7 %, nearly all of it in user mode; 48 % utilisation at 121 of 400 W and full clocks."""
    small = Use(sm=0.3, dram=0.1)
    launches = Job(
        (
            replace(
                STEP, forward=Kernels(1500, 9.6, 20, small), backward=Kernels(1500, 9.6, 20, small), input=Input(2, 1.0)
            ),
        ),
        A100,
        watch=SECONDS,
    )
    seen = Seen(simulate(launches), tmp_path)
    assert seen.cores(FIRST)[0] + seen.cores(FIRST + 31)[0] == pytest.approx(1, abs=0.03)
    means = {name: sum(values) / len(values) for (_, name), (_, values) in seen.series.items()}
    assert means["busy_fraction"] == pytest.approx(0.48, abs=0.03)
    assert means["power_watts"] == pytest.approx(121, abs=15)
    assert means["sm_clock_hertz"] == 1410e6


def test_an_exposed_copy_costs_what_it_takes() -> None:
    """50 GB/s: 2 GB take 40 ms beside 100 ms of kernels, so the share is 40/140."""
    waited = job(copy=Copy(2_000_000_000, "waiting"))
    assert share_of(waited, job(copy=Copy(2_000_000_000, "hidden"))) == pytest.approx(40 / 140, abs=0.02)
    pageable = job(copy=Copy(400_000_000, "pageable", 4e9))
    assert share_of(pageable, SOUND) == pytest.approx(100 / 200, abs=0.02)


def test_launches_that_take_longer_than_their_kernels_set_the_pace() -> None:
    """1000 launches of 20 us for 5 us of work each: without their cost 5 ms of 20 remain."""
    slow = job(
        forward=Kernels(1000, 5, 20, BUSY), backward=Kernels(1, 5, 5, BUSY), optimizer=Kernels(1, 5, 5, BUSY),
        input=Input(2, 1.0),
    )  # fmt: skip
    fast = replace(slow, steps=(replace(slow.steps[0], forward=Kernels(1000, 5, 0.1, BUSY)),))
    assert share_of(slow, fast) == pytest.approx(0.74, abs=0.03)


def test_slow_workers_set_the_pace_and_the_trainer_waits_for_its_pinned_batches(tmp_path: Path) -> None:
    """Two workers of 400 ms give 5 batches a second."""
    run = simulate(job(input=Input(2, 400.0, uneven=0.0)))
    assert run.pace == pytest.approx(5, rel=0.03)
    seen = Seen(run, tmp_path)
    states = seen.states(FIRST)
    assert states["S", "futex"] / states.total() > 0.7
    assert seen.cores(FIRST + 100)[0] > 0.95


def test_an_allocator_that_thrashes_calls_the_driver(tmp_path: Path) -> None:
    churn = job(churn=Churn(1, 200, 500.0))
    assert share_of(churn, SOUND) == pytest.approx(0.5, abs=0.03)
    blocked = replace(churn, unsure=Unsure(ioctl_blocks=0.8))
    seen = Seen(simulate(blocked), tmp_path)
    targets = {sample.target for sample in seen.samples if sample.syscall == "ioctl"}
    assert targets == {"file:/dev/nvidiactl", "file:/dev/nvidia0", "file:/dev/nvidia-uvm"}


def test_a_sound_job_makes_no_calls_of_the_driver(tmp_path: Path) -> None:
    seen = Seen(simulate(SOUND), tmp_path)
    assert not any(sample.syscall == "ioctl" for sample in seen.samples)


def test_ranks_wait_for_the_late_one_in_a_collective(tmp_path: Path) -> None:
    late = replace(STEP, own_us=200_000)
    exchange = Exchange(8, 1.0)
    both = Job((STEP, late), H100, exchange, watch=SECONDS)
    assert share_of(both, replace(both, steps=(STEP, STEP))) == pytest.approx(0.55, abs=0.05)
    seen = Seen(simulate(both), tmp_path)
    busy = [seen.series[f"gpu:{rank}", "busy_fraction"][1] for rank in (0, 1)]
    watts = [seen.series[f"gpu:{rank}", "power_watts"][1] for rank in (0, 1)]
    # The one that waits looks busier, at less power for each second of it.
    assert sum(busy[0]) / len(busy[0]) > 0.95 > sum(busy[1]) / len(busy[1])
    assert sum(watts[0]) / len(watts[0]) < 450


def test_an_exchange_beside_the_backward_pass_is_free_and_a_long_one_is_not() -> None:
    hidden = Job((STEP, STEP), A100_PCIE, Exchange(16, 2.0, link="pcie"), watch=SECONDS)
    assert simulate(hidden).pace == pytest.approx(10, rel=0.05)
    exposed = replace(hidden, exchange=Exchange(16, 10.0, link="pcie"))
    # It begins after the first sixteenth of the backward pass, and ends 160 ms later.
    assert simulate(exposed).pace == pytest.approx(1000 / (30 + 69 / 16 + 160 + 1), rel=0.05)


@pytest.mark.parametrize("wait", [Cores(delay=0.4), Cores(stopped=0.4)])
def test_a_thread_without_a_core_waits_in_its_run_queue(wait: Cores, tmp_path: Path) -> None:
    launch_bound = job(forward=Kernels(4000, 5, 20, BUSY), backward=Kernels(1, 5, 5, BUSY), input=Input(2, 1.0))
    crowded = replace(launch_bound, host=Host(8, wait=wait))
    assert share_of(crowded, launch_bound) == pytest.approx(0.4, abs=0.05)
    run, delay = Seen(simulate(crowded), tmp_path).cores(FIRST)
    assert run == pytest.approx(0.6, abs=0.06)
    assert delay == pytest.approx(0.4, abs=0.06)


def test_two_threads_share_the_gil(tmp_path: Path) -> None:
    """Each has it for the switch interval: a host that needs 80 ms of it for a step gets half the pace."""
    launch_bound = job(forward=Kernels(4000, 5, 20, BUSY), backward=Kernels(1, 5, 5, BUSY), input=Input(2, 1.0))
    assert share_of(replace(launch_bound, hog=1.0), launch_bound) == pytest.approx(0.5, abs=0.07)
    seen = Seen(simulate(replace(launch_bound, hog=1.0)), tmp_path)
    assert seen.gil[FIRST] / seen.gil.total() == pytest.approx(0.33, abs=0.12)  # workers' interpreters are read too


def test_throttled_clocks_cost_what_they_are_lower() -> None:
    assert share_of(replace(SOUND, clocks=(Clocks(0.6, 0x40),)), SOUND) == pytest.approx(0.4, abs=0.02)


def test_a_neighbour_takes_turns(tmp_path: Path) -> None:
    shared = replace(SOUND, neighbour=(0.5,))
    assert share_of(shared, SOUND) == pytest.approx(1 / 3, abs=0.02)
    seen = Seen(simulate(shared), tmp_path)
    assert seen.series["gpu:0", "foreign_processes"][1][0] == 1
    assert seen.series["gpu:0", "foreign_sm_fraction"][1][-1] == pytest.approx(1 / 3, abs=0.05)


def test_gpus_of_others_are_not_read_where_the_job_s_are_known(tmp_path: Path) -> None:
    watch = replace(SECONDS, spare_gpus=3, first_gpu=2)
    seen = Seen(simulate(replace(SOUND, watch=watch)), tmp_path)
    assert {subject for subject, name in seen.series if name == "busy_fraction"} == {"gpu:2"}
    hidden = replace(watch, host_ids=True, all_visible=False)
    (tmp_path / "hidden").mkdir()
    seen = Seen(simulate(replace(SOUND, watch=hidden)), tmp_path / "hidden")
    assert len({subject for subject, name in seen.series if name == "busy_fraction"}) == 4


def test_a_seed_always_gives_the_same_job_and_recording(tmp_path: Path) -> None:
    planted = [random_job(11, "churn") for _ in range(2)]
    assert planted[0] == planted[1]
    samples = []
    for number, one in enumerate(planted):
        (tmp_path / str(number)).mkdir()
        samples.append(Seen(simulate(one.job, 3), tmp_path / str(number)).samples)
    assert samples[0] == samples[1]
    assert random_job(12, "churn") != planted[0]


def test_the_simulator_does_not_know_how_jobs_are_judged() -> None:
    """It knows the recording and what writes it; only the score asks for a diagnosis."""
    known = []
    for path in sorted((ROOT / "tests" / "gpu_jobs").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            known += [(path.name, name) for name in names if name.startswith("perfdoctor")]
    assert known
    left = ("perfdoctor.probes", "perfdoctor.recording", "perfdoctor.capture")
    beyond = {(file, name) for file, name in known if not name.startswith(left)}
    assert beyond == {("score.py", "perfdoctor")}


def test_every_cause_that_is_planted_is_one_of_perfdoctor_s() -> None:
    assert {plant.cause for plant in PLANTS.values()} <= CAUSES.keys()


def test_what_is_planted_takes_what_it_is_said_to(tmp_path: Path) -> None:
    planted = random_job(3, "pageable")
    run = simulate(planted.job)
    assert 0.12 <= planted.truth(run) <= 0.92
    with Recording.open(record(run, tmp_path / "job.perfdoctor")) as recording:
        diagnosis = examine(recording)
    assert sum(part.share for part in diagnosis.breakdown) == pytest.approx(1, abs=0.001)
