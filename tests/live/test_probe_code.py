"""The code probe on processes whose work is known, and the names of functions in ELF files."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perfdoctor.knowledge.symbols import classify
from perfdoctor.probes import Refusal
from perfdoctor.probes.code import CodeProbe
from perfdoctor.probes.readers import perf_events, ptrace_sampler
from perfdoctor.probes.readers.procfs import status_fields
from perfdoctor.probes.readers.ptrace_program import PERIOD_S, STOPPED_PART, TickPeriod
from perfdoctor.probes.readers.ptrace_sampler import PtraceSampler, StoppedThread, stops_threads
from perfdoctor.probes.readers.symbols import Elf
from perfdoctor.recording.schema import CodeSample, Sample, Symbol, Unavailable
from tests.processes.attaching import until
from tests.processes.watching import Watched

pytestmark = pytest.mark.alone

PROGRAM = Path(__file__).parents[1] / "targets" / "code_busy.py"


@contextmanager
def started(*command: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def target(mode: str) -> Iterator[int]:
    with started(sys.executable, str(PROGRAM), mode) as process:
        yield process.pid


def refused(*_: object) -> Refusal:
    return Refusal("It is refused.", "allow it")


@pytest.fixture(params=["by the profiler", "by stops"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By which machine code is sampled."""
    if request.param == "by stops":
        monkeypatch.setattr(perf_events, "refusal", refused)
    return str(request.param)


def watch(pid: int, seconds: float = 2.0) -> tuple[list[CodeSample], dict[tuple[str, int], str]]:
    probe = CodeProbe()
    seen: list[Sample] = list(probe.open(Watched(pid, torch=True)))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.25)
        seen += probe.sample(time.monotonic_ns())
    seen += probe.close()
    refused = [sample for sample in seen if isinstance(sample, Unavailable) and "stopped" not in sample.reason]
    if refused:
        pytest.skip(refused[0].reason)
    samples = [sample for sample in seen if isinstance(sample, CodeSample)]
    symbols = {(sample.image, sample.offset): sample.symbol for sample in seen if isinstance(sample, Symbol)}
    assert len(samples) >= 20
    return samples, symbols


def kinds(samples: list[CodeSample], symbols: dict[tuple[str, int], str]) -> Counter[str]:
    return Counter(classify(sample.image, symbols.get((sample.image, sample.offset), "")) for sample in samples)


@pytest.mark.usefixtures("way")
def test_python_loop_is_in_the_interpreter() -> None:
    begun = time.monotonic_ns()
    with target("python") as pid:
        samples, symbols = watch(pid)
    ended = time.monotonic_ns()
    assert all(begun < sample.time_ns < ended for sample in samples)
    assert {sample.tid for sample in samples} == {pid}
    assert [sample.time_ns for sample in samples] == sorted(sample.time_ns for sample in samples)
    assert kinds(samples, symbols)["interpreter"] / len(samples) > 0.9
    assert any("PyEval" in name for name in symbols.values())


@pytest.mark.usefixtures("way")
def test_the_backward_pass_is_seen_in_the_thread_that_carries_it_out() -> None:
    with target("backward") as pid:
        samples, symbols = watch(pid, 4.0)
        task = Path(f"/proc/{pid}/task")
        names = {int(thread.name): (thread / "comm").read_text().strip() for thread in task.iterdir()}
    backward = [sample for sample in samples if sample.tid != pid]
    assert {names[sample.tid] for sample in backward} == {"pt_autograd_0"}
    assert kinds(backward, symbols)["interpreter"] / len(backward) > 0.9


@pytest.mark.usefixtures("way")
def test_busy_threads_of_a_process_on_a_gpu_are_sampled_whatever_their_names() -> None:
    with target("on_gpu") as pid:
        samples, symbols = watch(pid, 8.0)
    others = [sample for sample in samples if sample.tid != pid]
    assert kinds(others, symbols)["interpreter"] / len(others) > 0.9


@pytest.mark.usefixtures("way")
def test_multiplying_matrices_is_arithmetic() -> None:
    pytest.importorskip("torch")
    with target("matmul") as pid:
        samples, symbols = watch(pid)
    assert kinds(samples, symbols)["kernel"] / len(samples) > 0.9
    images = Counter(sample.image for sample in samples)
    assert images.most_common(1)[0][0].startswith(("libtorch_cpu", "[jit]", "libmkl", "libopenblas"))


@pytest.mark.usefixtures("way")
def test_process_that_left_is_let_go_and_its_functions_are_still_named() -> None:
    probe = CodeProbe()
    with target("python") as pid:
        job = Watched(pid, torch=True)
        list(probe.open(job))
        time.sleep(1.0)
        before = [s for s in probe.sample(time.monotonic_ns()) if isinstance(s, CodeSample)]
    if not before:
        pytest.skip("no samples: perf_event_open is refused here")
    job.members = ()
    list(probe.sample(time.monotonic_ns()))
    assert any(isinstance(sample, Symbol) for sample in probe.close())


@pytest.mark.usefixtures("way")
def test_an_idle_process_has_hardly_any_samples() -> None:
    process = subprocess.Popen(["sleep", "60"])
    probe = CodeProbe()
    try:
        seen = list(probe.open(Watched(process.pid, torch=True)))
        time.sleep(0.5)
        seen += probe.sample(time.monotonic_ns())
        seen += probe.close()
    finally:
        process.kill()
        process.wait()
    assert len([sample for sample in seen if isinstance(sample, CodeSample)]) <= 2


@contextmanager
def stopping(pid: int) -> Iterator[tuple[PtraceSampler, StoppedThread]]:
    """Stops the main thread of a process now and then."""
    sampler = PtraceSampler()
    try:
        yield sampler, sampler.sample(pid, Path(f"/proc/{pid}/task/{pid}"), in_turn=False)
    finally:
        sampler.close()


def run_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def tracer_of(pid: int) -> int:
    return int(status_fields(Path(f"/proc/{pid}/status").read_bytes())["TracerPid"])


def test_signals_reach_a_thread_that_is_stopped_now_and_then() -> None:
    with started(sys.executable, str(PROGRAM), "signals") as process, stopping(process.pid) as (_, thread):
        assert process.stdout is not None
        for _ in range(1500):
            os.kill(process.pid, signal.SIGRTMIN)
            time.sleep(0.001)
        assert len(thread.read()) >= 10
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == "1500\n"


def test_nobody_stays_stopped_where_the_program_is_killed() -> None:
    with target("python") as pid:
        for _ in range(5):
            with stopping(pid) as (sampler, thread):
                assert until(lambda: len(thread.read()) > 0)
                sampler.process.kill()
                sampler.process.wait()
                assert tracer_of(pid) == 0
                before = run_ns(pid)
                assert until(lambda before=before: run_ns(pid) > before)


def test_the_program_is_known_as_the_tracer_that_it_is() -> None:
    with target("python") as pid, stopping(pid) as (sampler, thread):
        assert until(lambda: len(thread.read()) > 0)
        assert stops_threads(sampler.process.pid)
        assert not stops_threads(pid)


def test_who_is_let_go_is_stopped_no_more() -> None:
    with target("python") as pid, stopping(pid) as (_, thread):
        assert until(lambda: len(thread.read()) > 0)
        thread.close()
        time.sleep(0.3)
        assert thread.read() == []
        assert tracer_of(pid) == 0


def test_a_thread_that_another_one_traces_is_left_to_it() -> None:
    code = "import ctypes, sys, time; print(ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), None, None), flush=True)"
    with target("python") as pid, started(sys.executable, "-c", f"{code}; time.sleep(60)", str(pid)) as debugger:
        assert tracer_of(pid) == debugger.pid
        with stopping(pid) as (sampler, thread):
            assert until(lambda: thread.read() == [] and sampler.refused == [(pid, errno.EPERM)])
            assert tracer_of(pid) == debugger.pid
            debugger.kill()
            assert until(lambda: len(thread.read()) > 0)
        assert sampler.refused == [(pid, errno.EPERM)]


def test_a_period_that_stops_nobody_for_long() -> None:
    period = TickPeriod()
    for _ in range(100):
        period.ticked(0.00005)
    assert period.period_s == PERIOD_S
    for _ in range(100):
        period.ticked(0.005)
    assert period.period_s == pytest.approx(0.005 / STOPPED_PART, rel=0.01)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_ordinary_user_on_own_and_on_another_users_process() -> None:
    program = (
        "import os, sys, time\n"
        "from perfdoctor.probes.code import CodeProbe\n"
        "class Job:\n    def torch_pids(self): return (int(sys.argv[1]),)\n"
        "os.setuid(65534)\n"
        "probe = CodeProbe()\nseen = list(probe.open(Job()))\ntime.sleep(1)\n"
        "seen += probe.sample(0)\nprobe.close()\n"
        "print([type(s).__name__ for s in seen], *[s.reason for s in seen if hasattr(s, 'reason')])"
    )
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no Python that another user may run")
    loop = [python, "-c", "while True: pass"]
    for user, wanted in ((65534, "CodeSample"), (0, "Unavailable")):
        process = subprocess.Popen(loop, user=user)
        try:
            time.sleep(0.2)
            told = subprocess.run(
                [sys.executable, "-c", program, str(process.pid)], capture_output=True, text=True, check=True
            ).stdout
        finally:
            process.kill()
            process.wait()
        paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
        if not user and paranoid < 0:
            continue
        refused_to_all = f"perf_event_paranoid is {paranoid}" in told
        assert wanted in told or refused_to_all
        if wanted == "Unavailable":
            assert f"Process {process.pid} belongs to root" in told or refused_to_all


def test_refusal_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    setting = tmp_path / "proc/sys/kernel/perf_event_paranoid"
    setting.parent.mkdir(parents=True)
    setting.write_text("4\n")

    def refuse(tid: int, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(perf_events, "open_event", refuse)
    for by_stops in (True, False):
        if not by_stops:
            monkeypatch.setattr(ptrace_sampler, "refusal", refused)
        probe = CodeProbe(tmp_path)
        (said,) = probe.open(Watched(11, 12, torch=True))
        assert isinstance(said, Unavailable)
        assert "kernel.perf_event_paranoid is 4" in said.reason
        assert ("stopped for a moment" in said.reason) == by_stops
        assert "sysctl" in said.enable
        list(probe.close())


def build(folder: Path, *flags: str, more: str = "") -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = folder / "two.c"
    source.write_text(
        "static int __attribute__((noinline)) hidden(int x) { return x * x; }\n"
        "int shown(int x) { return hidden(x) + 1; }\nint other(int x) { return shown(x) + 2; }\n" + more
    )
    library = folder / "libtwo.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", *flags, "-o", library, source], check=True)
    return library


def test_functions_of_a_library(tmp_path: Path) -> None:
    with Elf(build(tmp_path)) as elf:
        found = elf.find("shown")
        assert found is not None
        assert elf.find("hidden") is None
        assert elf.find("own") is None
        names = elf.functions_at(range(found[0] - 64, found[0] + found[1]))
    assert names[found[0]] == "shown"
    assert names[found[0] + found[1] - 1] == "shown"
    assert "hidden" in names.values()


def test_functions_whose_size_is_unknown_reach_to_the_next_one(tmp_path: Path) -> None:
    """Assembly by hand, as NNPACK's kernels are, need not say where a function ends."""
    source = '__asm__(".text\\n.globl bare\\n.type bare, @function\\nbare: .rept 40; nop; .endr; ret");\n'
    with Elf(build(tmp_path, more=source)) as elf:
        found, own = elf.find("bare"), elf.find("shown")
        assert found is not None
        assert own is not None
        assert found[1] == 0
        assert elf.functions_at([found[0] + 20, own[0]]) == {found[0] + 20: "bare", own[0]: "shown"}


def test_assembly_that_does_not_say_what_is_a_function_is_named_by_its_labels(tmp_path: Path) -> None:
    """As MKL's for CPUs without AVX; inside of a function that is one, its name counts."""
    lines = (
        ".text", ".globl bare", "bare: .rept 20; nop; .endr", "$x: .rept 20; nop; .endr",
        "round: .rept 40; nop; .endr; ret", ".globl whole",
        ".type whole, @function", "whole: nop", "inner: nop; ret", ".size whole, .-whole",
    )  # fmt: skip
    source = "".join(f'__asm__("{line}");\n' for line in lines)
    with Elf(build(tmp_path, more=source)) as elf:
        whole = elf.find("whole")
        assert whole is not None
        start = whole[0] - 81  # 80 times nop, and ret
        names = elf.functions_at([start, start + 20, start + 45, whole[0], whole[0] + 1, whole[0] + 2])
    assert list(names.values()) == ["bare", "bare", "round", "whole", "whole", "whole"]


def test_functions_of_a_stripped_library(tmp_path: Path) -> None:
    with Elf(build(tmp_path)) as elf:
        inside = next(at for at, name in elf.functions_at(range(0x2000)).items() if name == "hidden")
        shown = elf.find("shown")
    with Elf(build(tmp_path, "-s")) as elf:
        assert shown is not None
        assert elf.functions_at([shown[0]]) == {shown[0]: "shown"}
        assert elf.functions_at([inside])[inside].startswith("~")


def test_what_is_not_an_elf_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program at all" * 10)
    with pytest.raises(ValueError, match="not a readable ELF file"):
        Elf(tmp_path / "text")
    (tmp_path / "short").write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 20)
    with pytest.raises(ValueError, match="not a readable ELF file"):
        Elf(tmp_path / "short")
