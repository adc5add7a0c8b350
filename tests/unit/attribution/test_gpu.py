"""Jobs on a GPU, watched from outside: what hosts wait for and what GPUs idle for."""

import json
from collections.abc import Mapping

import pytest

from perfdoctor import examine
from perfdoctor.attribution.gpu import share_second, split_idle
from perfdoctor.attribution.gpu_use import GpuUse
from perfdoctor.attribution.share import DEVICE_WAIT as WAIT
from perfdoctor.attribution.share import LAUNCHING as LAUNCH
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.schema import Fact, ProcessSeen, Sample
from tests.builders import jobs
from tests.builders.gpu_hosts import (
    BACKWARD,
    DISPATCH,
    DRIVER,
    FORWARD,
    LOOP,
    PID,
    PYTHON,
    SPIN,
    accounts_of,
    gpu_job,
    shares,
)

GPU, LOG, SYNC = "gpu.compute", "io.log_write", "cpu.synchronization"
COMPUTE = GpuUse(None, 1.0, {"gpu.compute": 1.0}, None)


def test_a_host_that_spins_while_its_gpu_is_busy_has_no_bottleneck() -> None:
    spinning = {SPIN: 0.4, DRIVER: 0.4, DISPATCH: 0.1, PYTHON: 0.1}
    assert shares(gpu_job(code=spinning, busy_fraction=1.0))["gpu.compute"] == pytest.approx(1.0)


def test_a_host_that_never_waits_launches_too_slowly() -> None:
    launching = {DRIVER: 0.2, DISPATCH: 0.5, PYTHON: 0.3}
    found = shares(gpu_job(code=launching, busy_fraction=0.4))
    assert found["cpu.kernel_launch"] == pytest.approx(0.6, abs=0.02)
    assert found["gpu.compute"] == pytest.approx(0.4, abs=0.02)


def test_a_host_that_waits_in_each_step_lets_the_gpu_idle_in_between() -> None:
    draining = {SPIN: 0.3, DRIVER: 0.26, DISPATCH: 0.26, PYTHON: 0.18}
    found = shares(gpu_job(code=draining, stacks=(FORWARD, LOOP), busy_fraction=0.6))
    assert found["cpu.synchronization"] == pytest.approx(0.4, abs=0.05)
    assert found.get("cpu.kernel_launch", 0.0) < 0.05


def test_compiled_code_launches_past_the_dispatcher() -> None:
    """The driver runs more than that asked for, and hardly asks for the time: nobody waits for results there."""
    launching = {SPIN: 0.01, DRIVER: 0.6, DISPATCH: 0.3, PYTHON: 0.09}
    found = shares(gpu_job(code=launching, busy_fraction=0.7))
    # A tenth of a wait asks for the time, as a rule more: 0.01 vouches for 0.1 at most.
    assert found["cpu.kernel_launch"] == pytest.approx(0.2, abs=0.02)
    assert found.get("cpu.synchronization", 0.0) <= 0.102


def test_a_host_that_waits_for_room_in_the_launch_queue_has_no_bottleneck() -> None:
    ahead = {SPIN: 0.01, DRIVER: 0.8, DISPATCH: 0.15, PYTHON: 0.04}
    assert shares(gpu_job(code=ahead, busy_fraction=1.0)) == {GPU: pytest.approx(1.0)}


def test_python_that_launches_next_to_nothing_is_the_jobs_own() -> None:
    found = shares(gpu_job(code={PYTHON: 0.9, DISPATCH: 0.07, DRIVER: 0.03}, busy_fraction=0.3))
    assert found["cpu.python_overhead"] == pytest.approx(0.7, abs=0.12)
    assert found.get("cpu.kernel_launch", 0.0) < 0.12


def test_waiting_for_input_comes_before_launching() -> None:
    loader = Frame("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_SingleProcess._next_data", 5)
    fetch = Frame("/v/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", "fetch", 5)
    code, stacks = {DRIVER: 0.1, DISPATCH: 0.3, PYTHON: 0.6}, (FORWARD, (jobs.OWN, loader, fetch))
    account = accounts_of(gpu_job(code=code, stacks=stacks, busy_fraction=0.4))[0]
    found, fetching = account.causes().fractions(), account.phases.fractions()["data"]
    assert found["cpu.input_preprocessing"] == pytest.approx(fetching, abs=0.01)
    assert found["cpu.kernel_launch"] == pytest.approx(0.6 - fetching, abs=0.01)


def test_the_thread_of_the_backward_pass_is_judged_in_place_of_the_sleeping_main_thread() -> None:
    """It spins for the GPU; of the main thread alone one would say that it waits for input, ranks or the GIL."""
    backward = [
        *jobs.thread(PID + 2, PID, "SR", name="pt_autograd_0", run=0.5),
        *jobs.code(PID + 2, *SPIN, 250),
        *jobs.code(PID + 2, *DRIVER, 245),
        *jobs.gil(PID, PID + 2),
    ]
    main = {SPIN: 0.2, DRIVER: 0.2, DISPATCH: 0.05, PYTHON: 0.05}
    one = gpu_job("RS", main, (BACKWARD,), busy_fraction=1.0)
    assert shares([*one, *backward])["gpu.compute"] == pytest.approx(1.0)
    idle = gpu_job("RS", main, (BACKWARD,), busy_fraction=0.5)
    assert "cpu.gil_contention" not in shares([*idle, *backward])


def test_the_thread_that_trains_need_not_be_the_first_one() -> None:
    """Ray trains in a thread of its own, and the first one waits for commands."""
    samples = [
        *jobs.process(PID),
        *jobs.thread(PID, PID, "S", call="poll"),
        *jobs.thread(PID + 1, PID, "S", name="cuda-EvtHandlr", call="poll"),
        *jobs.thread(PID + 5, PID, "R", name="TrainingThread(", run=1.0),
        *jobs.stacks(PID, (Frame("/v/lib/python3.11/site-packages/ray/_private/worker.py", "main_loop", 1),)),
        *jobs.stacks(PID, (jobs.BOOTSTRAP, *FORWARD), (jobs.BOOTSTRAP, *BACKWARD), ident=2),
        *jobs.named(PID, PID, 1),
        *jobs.named(PID + 5, PID, 2),
        *jobs.code(PID + 5, *DISPATCH, 700),
        *jobs.code(PID + 5, *DRIVER, 280),
        *jobs.readings("gpu:0", "busy_fraction", *[0.4] * 20, every_s=0.5, probe="gpu"),
        *jobs.readings(f"gpu:0/pid:{PID}", "memory_bytes", 1e9, 1e9, probe="gpu"),
    ]
    assert shares(samples)["cpu.kernel_launch"] == pytest.approx(0.6, abs=0.02)


STATISTICS = (jobs.BOOTSTRAP, Frame("/home/me/train.py", "update", 70))
LAUNCHING = {DRIVER: 0.1, DISPATCH: 0.35, PYTHON: 0.25}


def beside_a_thread(pid: int = PID, name: str = "python") -> list[Sample]:
    """A thread of Python's that keeps the GIL by turns, while the main one wants it for 3 of 10 samples."""
    return [
        *jobs.thread(pid + 5, pid, "SSSSSSSRRR", name=name, run=0.3),
        *jobs.named(pid + 5, pid, 2, "Thread-1 (update)"),
        *jobs.stacks(pid, STATISTICS, ident=2),
        *jobs.gil(pid, pid, pid + 5),
    ]


def test_a_thread_that_sleeps_wants_the_gil_even_if_the_nearest_sample_is_of_its_own_turn() -> None:
    """Turns last 5 ms and samples are 20 ms apart; it is no wait for the GPU, and no thread of autograd's works."""
    loader = Frame("/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", "_Multi._get_data", 5)
    waiting = (jobs.OWN, loader, Frame("/usr/lib/python3.11/threading.py", "wait", 327))
    stacks = (FORWARD,) * 9 + (waiting,)
    found = shares([*gpu_job("RRRRRRRSSS", LAUNCHING, stacks, busy_fraction=0.6), *beside_a_thread()])
    assert found["cpu.gil_contention"] >= 0.25
    assert found["gpu.compute"] == pytest.approx(0.6, abs=0.05)


def test_hosts_that_are_late_by_turns_cost_what_their_gpus_wait_in_collectives_as_well() -> None:
    """Each leaves its own GPU idle for a tenth of the time, and in the rest of its 0.3 the others' are idle."""
    level = {"busy_fraction": 0.9, "power_watts": 680.0, "power_limit_watts": 700.0}
    samples: list[Sample] = []
    for number in range(4):
        rank = {"RANK": str(number), "WORLD_SIZE": "4"}
        pid = PID + 10 * number
        samples += gpu_job("RRRRRRRSSS", LAUNCHING, pid=pid, gpu=number, rank=rank, **level)
        samples += beside_a_thread(pid)
    found = accounts_of(samples)[0].causes().fractions()
    assert found["cpu.gil_contention"] == pytest.approx(0.3, abs=0.04)
    alone = gpu_job("RRRRRRRSSS", LAUNCHING, **level)
    assert shares([*alone, *beside_a_thread()])["cpu.gil_contention"] == pytest.approx(0.1, abs=0.02)


def test_readings_that_scatter_leave_no_time_to_launching() -> None:
    """A utilisation is of a part of each second, and the host the same in all of them."""
    job = [*gpu_job("RRRRRRRSSS", LAUNCHING), *beside_a_thread()]
    busy = jobs.readings("gpu:0", "busy_fraction", *[0.95, 0.95, 0.45, 0.45] * 5, every_s=0.5, probe="gpu")
    assert shares([*job, *busy]).get("cpu.kernel_launch", 0.0) < 0.04


def test_whoever_spins_for_its_gpu_sleeps_for_its_input() -> None:
    """The nearest stack may be of the code behind the loader; another host would sleep there for its GPU."""
    worker = PID + 3
    busy = jobs.thread(worker, worker, "R", run=1.0, name="pt_data_worker")
    forked = [*jobs.process(worker, parent=PID, forked=True), *busy]
    awake = gpu_job("RRRRRRRSSS", {SPIN: 0.3, DRIVER: 0.3, DISPATCH: 0.1}, (LOOP,), busy_fraction=0.6)
    asleep = gpu_job("RRRSSSSSSS", {DISPATCH: 0.2, PYTHON: 0.1}, (LOOP,), busy_fraction=0.6)
    assert shares([*awake, *forked])["cpu.input_preprocessing"] == pytest.approx(0.3, abs=0.03)
    assert shares([*asleep, *forked]).get("cpu.input_preprocessing", 0.0) < 0.1


def test_calls_on_the_drivers_files_are_allocation_and_never_storage() -> None:
    samples = gpu_job(
        "RRRRRRRDDD", {SPIN: 0.2, DRIVER: 0.2, DISPATCH: 0.2, PYTHON: 0.1}, call="ioctl", target="file:/dev/nvidia0",
        busy_fraction=0.6,
    )  # fmt: skip
    # States besides S have no call in this builder: say what the blocked ones are in.
    samples = [
        row._replace(syscall="ioctl", target="file:/dev/nvidia0") if getattr(row, "state", "") == "D" else row  # type: ignore[union-attr]
        for row in samples
    ]
    found = shares(samples)
    assert found["gpu.memory_pressure"] >= 0.3
    assert not any(cause.startswith("io.") for cause in found)


def test_calls_of_the_driver_for_which_the_gpu_works_on_are_waits_for_it() -> None:
    """Blocking synchronisation may wait in a call, too, and a job may keep all of the memory for itself."""
    samples = gpu_job(
        "RSSSSSSSSS", {DISPATCH: 0.1}, call="ioctl", target="file:/dev/nvidia0", busy_fraction=1.0,
        memory_used_bytes=79e9, memory_total_bytes=80e9,
        sm_clock_hertz=1e9, sm_clock_max_hertz=2e9, clocks_limited_by_power_brake=1.0,
    )  # fmt: skip
    found = shares(samples)
    assert found.get("gpu.memory_pressure", 0.0) < 0.05
    assert found["gpu.throttled"] == pytest.approx(1 - 1 / (2 * 0.93), abs=0.02)


def test_blocking_waits_are_waits_for_the_gpu_and_not_for_locks() -> None:
    found = shares(gpu_job("RSSS", {DISPATCH: 0.15, PYTHON: 0.1}, (LOOP,), busy_fraction=1.0))
    assert found["gpu.compute"] == pytest.approx(1.0)


def test_without_utilisation_a_job_on_a_gpu_is_still_one() -> None:
    spinning = {SPIN: 0.45, DRIVER: 0.45, DISPATCH: 0.05, PYTHON: 0.05}
    assert shares(gpu_job(code=spinning))["gpu.compute"] > 0.9


def test_a_slowed_gpu_costs_what_its_host_waits_for_also_without_utilisation() -> None:
    slow = {"sm_clock_hertz": 1.0e9, "sm_clock_max_hertz": 2e9, "clocks_limited_by_heat": 1.0}
    spinning = {SPIN: 0.45, DRIVER: 0.45, DISPATCH: 0.05, PYTHON: 0.05}
    assert shares(gpu_job(code=spinning, **slow))["gpu.throttled"] == pytest.approx(1 - 0.5 / 0.93, abs=0.02)


@pytest.mark.parametrize(
    ("code", "cause", "most"),
    [
        ({SPIN: 0.45, DRIVER: 0.45, DISPATCH: 0.05, PYTHON: 0.05}, "gpu.compute", thresholds.CONFIDENCE_GPU_UNREAD),
        ({DRIVER: 0.2, DISPATCH: 0.5, PYTHON: 0.3}, "cpu.kernel_launch", thresholds.CONFIDENCE_GPU_UNREAD),
        ({PYTHON: 0.9, DISPATCH: 0.07, DRIVER: 0.03}, "cpu.python_overhead", thresholds.CONFIDENCE_GPU_OUTSIDE),
    ],
)
def test_without_utilisation_only_what_the_host_shows_is_as_sure_as_ever(
    code: Mapping[tuple[str, str], float], cause: str, most: float
) -> None:
    with jobs.recorded([*jobs.readings("host", "usable_cores", 8.0), *gpu_job(code=code)]) as recording:
        diagnosis = examine(recording)
    assert (diagnosis.verdict.cause, diagnosis.verdict.confidence) == (cause, most)
    assert "could not be read" in " ".join(str(one.reason) for one in diagnosis.not_examined)


def ranks(*levels: dict[str, float], codes: tuple[Mapping[tuple[str, str], float], ...]) -> list[Sample]:
    samples: list[Sample] = []
    for number, (level, code) in enumerate(zip(levels, codes, strict=True)):
        rank = {"RANK": str(number), "WORLD_SIZE": str(len(levels))}
        samples += gpu_job(code=code, pid=PID + 10 * number, gpu=number, rank=rank, power_limit_watts=700.0, **level)
    return samples


SPINNING = {SPIN: 0.45, DRIVER: 0.45, DISPATCH: 0.05, PYTHON: 0.05}


def test_ranks_that_all_draw_little_power_exchange() -> None:
    low = {"busy_fraction": 1.0, "power_watts": 418.0, "sm_active_fraction": 0.5}
    found = accounts_of(ranks(low, low, codes=(SPINNING, SPINNING)))
    assert found[0].causes().fractions()["communication.bandwidth"] == pytest.approx(0.5, abs=0.1)


def test_a_rank_whose_gpu_idles_is_what_the_others_wait_for() -> None:
    waiting = {"busy_fraction": 1.0, "power_watts": 418.0, "sm_active_fraction": 0.45}
    late = {"busy_fraction": 0.55, "power_watts": 400.0, "sm_active_fraction": 0.45}
    launching = {DRIVER: 0.2, DISPATCH: 0.5, PYTHON: 0.3}
    found = accounts_of(ranks(waiting, late, waiting, codes=(SPINNING, launching, SPINNING)))
    assert found[0].waited_for()[1] / found[0].seconds == pytest.approx(0.45, abs=0.1)
    assert found[0].causes().fractions()["cpu.kernel_launch"] == pytest.approx(0.45, abs=0.1)
    assert found[1].causes().fractions().get("communication.bandwidth", 0.0) < 0.05


def test_a_rank_without_a_gpu_waits_for_what_a_rank_on_one_spends_its_time_on() -> None:
    """While that launches, only sums over the whole recording say whether its GPU waits."""
    reduces = (jobs.OWN, Frame("/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "reduce", 3000))
    launches = {DRIVER: 0.2, DISPATCH: 0.5, PYTHON: 0.3}
    launching = gpu_job(code=launches, rank={"RANK": "0", "WORLD_SIZE": "2"}, busy_fraction=0.4)
    waiting = [
        *jobs.process(PID + 50, RANK="1", WORLD_SIZE="2"),
        *jobs.thread(PID + 50, PID + 50, "S", call="poll"),
        *jobs.stacks(PID + 50, reduces),
    ]
    on_gpu, without = accounts_of([*launching, *waiting])
    assert without.waited_for()[0] == pytest.approx(without.seconds)
    assert without.causes().fractions() == pytest.approx(on_gpu.causes().fractions())
    assert on_gpu.causes().fractions() == pytest.approx({"cpu.kernel_launch": 0.6, "gpu.compute": 0.4}, abs=0.02)


@pytest.mark.parametrize(("sent", "waited", "exchanged"), [(7e7, 0.23, 0.02), (1e10, 0.0, 0.25)])
def test_waits_of_ranks_that_are_late_by_turns_are_for_each_other_as_far_as_links_carry_little(
    sent: float, waited: float, exchanged: float
) -> None:
    """Each GPU idles for 0.25 while its host runs Python, and seems busy for as long while the other one idles."""
    levels = {"busy_fraction": 0.75, "power_watts": 368.0, "sm_active_fraction": 0.47}
    links = {f"pcie_{way}_bytes_per_second": sent for way in ("sent", "received")}
    computing = {PYTHON: 0.25, DISPATCH: 0.01, SPIN: 0.37, DRIVER: 0.37}
    found = accounts_of(ranks(levels | links, levels | links, codes=(computing, computing)))
    for account, other in ((found[0], 1), (found[1], 0)):
        causes = account.causes().fractions()
        assert account.waited_for().get(other, 0.0) / account.seconds == pytest.approx(waited, abs=0.05)
        assert causes.get("communication.bandwidth", 0.0) == pytest.approx(exchanged, abs=0.05)
        assert causes["cpu.python_overhead"] == pytest.approx(0.25 + waited, abs=0.06)


def test_a_rank_with_a_slowed_gpu_is_what_the_others_wait_for() -> None:
    """All read as fully used and draw much power; but the same work takes one of them longer by what slows it down."""
    clocks = {"busy_fraction": 1.0, "power_watts": 650.0, "sm_clock_max_hertz": 2e9}
    slow = {**clocks, "sm_clock_hertz": 1.2e9, "clocks_limited_by_heat": 1.0}
    found = accounts_of(ranks({**clocks, "sm_clock_hertz": 2e9}, slow, codes=(SPINNING, SPINNING)))
    assert found[0].waited_for()[1] / found[0].seconds == pytest.approx(0.4, abs=0.03)
    assert found[0].causes().fractions()["gpu.throttled"] == pytest.approx(0.4, abs=0.05)


def test_ranks_of_a_container_have_the_gpus_of_their_local_ranks() -> None:
    """There the driver lists ids of the host; a GPU that nobody uses is none of theirs."""
    levels = ({"busy_fraction": 1.0, "sm_active_fraction": 0.45}, {"busy_fraction": 0.55, "sm_active_fraction": 0.45})
    samples = of_container(levels)
    spare = jobs.readings("gpu:2", "busy_fraction", *[0.0] * 20, every_s=0.5, probe="gpu")
    gpus = jobs.timeline([*samples, *spare]).gpus
    assert [gpus.of(PID), gpus.of(PID + 10)] == [("gpu:0",), ("gpu:1",)]


def test_a_rank_beside_one_that_is_not_seen_on_a_gpu_has_the_gpu_of_its_own_number() -> None:
    levels = {"busy_fraction": 1.0, "sm_active_fraction": 0.45}
    samples = of_container((levels, levels), CUDA_VISIBLE_DEVICES="0,1")
    gpus = jobs.timeline([row for row in samples if getattr(row, "pid", None) != PID or isinstance(row, ProcessSeen)])
    assert not gpus.gpus.used_by(PID)
    assert gpus.gpus.of(PID + 10) == ("gpu:1",)


def of_container(levels: tuple[dict[str, float], ...], **variables: str) -> list[Sample]:
    """Ranks in a container, with local ranks and with variables of CUDA's, whose processes the driver does not list."""
    samples = [row for row in ranks(*levels, codes=(SPINNING,) * len(levels)) if "/pid:" not in subject_of(row)]
    return [with_variables(row, variables) if isinstance(row, ProcessSeen) else row for row in samples]


def subject_of(row: Sample) -> str:
    return getattr(row, "subject", "")


def with_variables(process: ProcessSeen, variables: Mapping[str, str]) -> ProcessSeen:
    environment = json.loads(process.environment)
    return process._replace(environment=json.dumps({**environment, "LOCAL_RANK": environment["RANK"], **variables}))


@pytest.mark.parametrize(
    ("variables", "names", "expected"),
    [
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, "AAAA", ["gpu:2", "gpu:3"]),
        ({"CUDA_VISIBLE_DEVICES": "3,1,0"}, "AAAA", ["gpu:3", "gpu:1"]),
        ({"CUDA_VISIBLE_DEVICES": "10,2"}, "AAAAAAAAAAA", ["gpu:10", "gpu:2"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2b, GPU-0"}, "AAAA", ["gpu:2", "gpu:0"]),
        # The fastest comes first, unless it is told to count as the driver does.
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, "AABB", []),
        ({"CUDA_VISIBLE_DEVICES": "2,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "AABB", ["gpu:2", "gpu:3"]),
        ({"CUDA_VISIBLE_DEVICES": "7,1"}, "AAAA", []),
        ({"HIP_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "2,3"}, "AAAA", ["gpu:2", "gpu:3"]),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "0,1"}, "AAAA", []),
    ],
)
def test_the_environment_tells_which_gpus_of_a_busy_machine_a_container_uses(
    variables: dict[str, str], names: str, expected: list[str]
) -> None:
    samples = of_container(({"busy_fraction": 1.0}, {"busy_fraction": 1.0}), **variables)
    for number, name in enumerate(names):
        samples += jobs.readings(f"gpu:{number}", "busy_fraction", *[1.0] * 20, every_s=0.5, probe="gpu")
        samples += [
            Fact(jobs.START, "gpu", f"gpu:{number}", fact, value)
            for fact, value in (("name", name), ("uuid", f"GPU-{number}b{number}"))
        ]
    gpus = jobs.timeline(samples).gpus
    every = tuple(f"gpu:{number}" for number in range(len(names)))
    of_each = [(gpu,) for gpu in expected] or [every, every]
    assert [gpus.of(PID), gpus.of(PID + 10)] == of_each


@pytest.mark.parametrize(
    ("host", "busy", "expected"),
    [
        # Never waits: all that it does besides launching is exposed, and launching gets the rest.
        ({LAUNCH: 0.7, LOG: 0.3}, 0.4, {GPU: 0.4, LOG: 0.3, "cpu.kernel_launch": 0.3}),
        # Waits in each step: launching would overlap, but for what exceeds the computing.
        ({LAUNCH: 0.5, WAIT: 0.5}, 0.6, {GPU: 0.6, SYNC: 0.4}),
        ({LAUNCH: 0.8, WAIT: 0.2}, 0.5, {GPU: 0.5, SYNC: 0.2, "cpu.kernel_launch": 0.3}),
        # It waits for more than kernels.
        ({LAUNCH: 0.2, WAIT: 0.8}, 0.5, {GPU: 0.5, "gpu.host_transfer": 0.3, SYNC: 0.2}),
        # Hidden behind the GPU.
        ({WAIT: 0.6, LOG: 0.3, LAUNCH: 0.1}, 1.0, {GPU: 1.0}),
    ],
)  # fmt: skip
def test_a_second_is_shared_between_host_and_gpu(
    host: dict[str, float], busy: float, expected: dict[str, float]
) -> None:
    found = share_second(host, COMPUTE, split_idle(host, COMPUTE, busy), busy)
    assert found == pytest.approx(expected)
