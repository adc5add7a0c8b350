"""What would work, and why not: real processes, another real user, and recorded trees for the rest."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perfdoctor.capture.check import preflight
from perfdoctor.capture.target import require_target
from perfdoctor.errors import PerfDoctorError
from perfdoctor.probes import Availability, all_probes
from perfdoctor.probes.readers import perf_events
from perfdoctor.probes.readers.perf_events import refusal as perf_refusal
from perfdoctor.probes.readers.permissions import memory_refusal, rights_over
from perfdoctor.probes.readers.process import python_of
from perfdoctor.probes.readers.ptrace_sampler import refusal as ptrace_refusal
from perfdoctor.probes.readers.py_spy import find_py_spy, newest_of_py_spy
from tests.processes import filtered
from tests.processes.watching import as_nobody, plant, program

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def by_probe(checks: list[Availability]) -> dict[str, Availability]:
    return {check.probe: check for check in checks}


def test_one_check_per_probe_in_order() -> None:
    assert [check.probe for check in preflight(None)] == [probe.name for probe in all_probes()]


def test_a_python_process_of_ours_can_be_looked_at() -> None:
    with program("done()") as job:
        job.step()
        checks = by_probe(preflight(job.pid))
    assert checks["threads"] == Availability("threads", True)
    assert checks["io"].state == checks["network"].state == "works"
    assert checks["interpreter"].available
    # It has no torch: stacks can be had, phases cannot.
    assert checks["stacks"].state == "in part"
    assert "torch" in checks["stacks"].reason


def test_a_launcher_stands_for_the_trainer_below_it() -> None:
    trainer = "import torch, sys; print(1, flush=True); sys.stdin.read()"
    code = f"import sys, subprocess\nsubprocess.run([sys.executable, '-c', {trainer!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "1\n"
        checks = by_probe(preflight(launcher.pid))
        assert launcher.stdin is not None
        launcher.stdin.close()
    assert checks["stacks"].state == "works"


def test_another_program_has_no_python_stacks() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        checks = by_probe(preflight(sleeper.pid))
        sleeper.kill()
    for probe in ("stacks", "interpreter"):
        assert checks[probe].state == "no"
        assert "not a Python process" in checks[probe].reason
    assert checks["threads"].state == "works"


def test_every_refusal_says_what_to_do() -> None:
    for check in preflight(None):
        assert bool(check.reason) == bool(check.enable), check
        assert check.available or check.reason, check


@only_root
def test_another_users_process_is_seen_in_part() -> None:
    code = """
import pynvml, psutil
from perfdoctor.capture.check import preflight
from perfdoctor.probes import all_probes
all_probes()
give_up()
for check in preflight(int(sys.argv[1])):
    print(check.probe, check.state, check.reason, check.enable, sep="|")
"""
    with program("done()") as job:
        job.step()
        lines = as_nobody(code, str(job.pid)).splitlines()
    states = {line.split("|")[0]: line.split("|")[1] for line in lines}
    assert states["cpu"] in ("works", "in part")
    assert {states[probe] for probe in ("threads", "io", "network")} == {"in part"}
    assert {states[probe] for probe in ("stacks", "interpreter", "code")} == {"no"}
    refusal = next(line for line in lines if line.startswith("interpreter|"))
    assert "root (uid 0)" in refusal
    assert f'sudo "$(which perfdoctor)" attach {job.pid}' in refusal


@only_root
def test_what_check_says_is_what_a_recording_keeps() -> None:
    code = """
import psutil
from perfdoctor.probes import Unavailable
from perfdoctor.probes.interpreter import InterpreterProbe
from perfdoctor.probes.io import IoProbe
from perfdoctor.probes.network import NetworkProbe
from perfdoctor.probes.readers.process import Candidate
give_up()
class Job:
    pids = torch_pids = lambda self: (int(sys.argv[1]),)
    forked_pids = lambda self: ()
for probe in (InterpreterProbe(), IoProbe(), NetworkProbe()):
    says = list(probe.check(Candidate(int(sys.argv[1]))).missing())
    keeps = [row for row in [*probe.open(Job()), *probe.sample(1)] if isinstance(row, Unavailable)]
    print(probe.name, says == keeps, len(keeps))
"""
    with program("done()") as job:
        job.step()
        lines = as_nobody(code, str(job.pid)).splitlines()
    assert lines == ["interpreter True 1", "io True 1", "network True 1"]


@only_root
def test_another_users_process_cannot_be_a_target() -> None:
    code = """
from perfdoctor.errors import PerfDoctorError
from perfdoctor.capture.target import require_target
give_up()
try:
    require_target(int(sys.argv[1]))
except PerfDoctorError as error:
    print(error, "|", error.hint)
"""
    with program("done()") as job:
        job.step()
        sentence = as_nobody(code, str(job.pid))
    assert f"Process {job.pid} belongs to root (uid 0); we are" in sentence
    assert "sudo" in sentence


@only_root
def test_a_process_that_protects_itself_is_named_so() -> None:
    # PR_SET_DUMPABLE (4) off, in a process of the same user as the one that looks.
    code = """
import ctypes, subprocess, time
from perfdoctor.probes.readers.permissions import rights_over
give_up()
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    os.write(writer, b".")
    time.sleep(60)
os.read(reader, 1)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
rights = rights_over(child)
os.kill(child, 9)
print(rights.read, rights.trace, rights.why_not.reason)
"""
    assert as_nobody(code).startswith("False False Process")
    assert "not dumpable" in as_nobody(code)


def test_no_such_process() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with pytest.raises(PerfDoctorError, match=f"There is no process {ended.pid}") as caught:
        require_target(ended.pid)
    assert caught.value.hint


@pytest.mark.parametrize("pid", [0, -1, 1 << 40])
def test_numbers_that_are_no_process_ids(pid: int) -> None:
    with pytest.raises(PerfDoctorError, match="There is no process"):
        require_target(pid)


def test_a_zombie_has_ended() -> None:
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(PerfDoctorError, match="has ended"):
        require_target(zombie.pid)
    with pytest.raises(PerfDoctorError, match="has ended"):
        preflight(zombie.pid)
    zombie.wait()


def test_a_thread_is_not_a_process() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with pytest.raises(PerfDoctorError, match=f"a thread of process {os.getpid()}"):
            require_target(thread.native_id or 0)
    finally:
        stop.set()
        thread.join()


def test_the_kernels_own_threads_are_refused(tmp_path: Path) -> None:
    tree = {
        "proc/self/status": "Uid:\t0\t0\t0\t0\n",
        "proc/2/status": "Name:\tkthreadd\nState:\tS\nTgid:\t2\nUid:\t0\t0\t0\t0\n",
    }
    with pytest.raises(PerfDoctorError, match="thread of the kernel"):
        require_target(2, plant(tmp_path, tree))


def test_a_number_from_inside_a_container_is_translated(tmp_path: Path) -> None:
    tree = {"proc/self/status": "", "proc/99123456/status": "NSpid:\t99123456\t4194399\n"}
    with pytest.raises(PerfDoctorError) as caught:
        require_target(4194399, plant(tmp_path, tree))
    assert "perfdoctor attach 99123456" in caught.value.hint


def test_not_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(PerfDoctorError, match="Linux only"):
        require_target(os.getpid())
    checks = preflight(os.getpid())
    assert [check.probe for check in checks] == [probe.name for probe in all_probes()]
    assert not any(check.available for check in checks)
    assert "Linux only" in checks[0].reason


def test_a_machine_without_proc(tmp_path: Path) -> None:
    with pytest.raises(PerfDoctorError, match="/proc is not mounted"):
        preflight(None, tmp_path)


def recorded(root: Path, *, scope: str, uid: int = 1000, owner: int = 1000, capabilities: str = "0") -> Path:
    """A /proc with a process 77 whose system calls may not be read, and ourselves as ``uid``."""
    status = "Name:\tpython\nState:\tR (running)\nTgid:\t77\nVmSize:\t 1 kB\n"
    status += "Uid:\t{0}\t{0}\t{0}\t{0}\nCapPrm:\t{1}\nCapEff:\t{1}\n"
    plant(
        root,
        {
            "proc/self/status": status.format(uid, capabilities),
            "proc/77/status": status.format(owner, "0"),
            "proc/77/io": "rchar: 1\n",
            "proc/77/environ": "",
            "proc/77/maps": "7f00-7f01 r-xp 00000000 08:01 12 /opt/conda/bin/python3.12\n",
            "proc/77/syscall": "running\n",
            "proc/sys/kernel/yama/ptrace_scope": scope,
        },
    )
    (root / "proc/77/syscall").chmod(0)
    if os.geteuid() == 0:
        os.chown(root / "proc/77/environ", owner, owner)
    for path in (root, *root.parents):  # So that the user without rights gets here at all.
        if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & stat.S_IXOTH:
            path.chmod(path.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    return root


EXPLAIN = """
from pathlib import Path
from perfdoctor.probes.readers.permissions import rights_over
give_up()
rights = rights_over(77, Path(sys.argv[1]))
print(rights.read, rights.trace, *rights.why_not, sep="|")
"""


@only_root
@pytest.mark.parametrize(
    ("scope", "capabilities", "reason", "enable"),
    [
        (
            "1",
            "0",
            "ptrace_scope is 1: only descendants may be traced.",
            "sudo sysctl kernel.yama.ptrace_scope=0",
        ),
        ("2", "0", "ptrace_scope is 2: only root may trace.", "sudo"),
        ("3", "1ffffffffff", "nobody may trace until the next boot", "boot"),
        ("0", "0", "The kernel forbids tracing", "sudo"),
    ],
)
def test_explains_ptrace_scope(tmp_path: Path, scope: str, capabilities: str, reason: str, enable: str) -> None:
    root = recorded(tmp_path, scope=scope, capabilities=capabilities)
    read, trace, why, how = as_nobody(EXPLAIN, str(root)).strip().split("|")
    assert (read, trace) == ("True", "False")
    assert reason in why
    assert enable in how


@only_root
def test_root_in_a_container_without_the_capability(tmp_path: Path) -> None:
    root = recorded(tmp_path, scope="1", uid=0, owner=1000)
    _, _, why, how = as_nobody(EXPLAIN, str(root)).strip().split("|")
    assert "belongs to" in why
    assert "docker run --cap-add SYS_PTRACE" in how
    assert "securityContext.capabilities.add" in how


def _open_refused(*_: object, **__: object) -> int:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_paranoid_kernels_do_not_sample_machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = plant(tmp_path, {"proc/sys/kernel/perf_event_paranoid": "3\n", "proc/self/status": "CapEff:\t0\n"})
    if perf_refusal() is None:
        assert perf_refusal(root) is None  # a kernel to which 3 means no more than 2
    monkeypatch.setattr(perf_events, "open_event", _open_refused)
    assert perf_refusal(root) == ("kernel.perf_event_paranoid is 3.", "sudo sysctl kernel.perf_event_paranoid=2")


def test_filters_are_found_by_trying() -> None:
    """Under a seccomp filter that refuses the calls, as a container's would (a real filter, in a child)."""
    code = """
from perfdoctor.probes.readers import perf_events, permissions, ptrace_sampler
for refusal in (perf_events.refusal(), permissions.memory_refusal(), ptrace_sampler.refusal()):
    print(refusal[0])
"""
    if not filtered.KNOWN:
        pytest.skip("numbers of system calls are known for two machines only")
    if memory_refusal() or perf_refusal() or ptrace_refusal():
        pytest.skip("these calls are refused here already")
    names = ("perf_event_open", "process_vm_readv", "ptrace")
    command = filtered.without(names, [sys.executable, "-c", code])
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    for name, line in zip(names, finished.stdout.splitlines(), strict=True):
        assert f"{name} is filtered" in line


def test_knows_the_python_of_a_process() -> None:
    with program("done()") as job:
        job.step()
        python = python_of(job.pid)
    assert python is not None
    assert python.version == sys.version_info[:2]


def test_a_python_that_this_py_spy_does_not_know(tmp_path: Path) -> None:
    py_spy = find_py_spy()
    if py_spy is None:
        pytest.skip("py-spy is not installed")
    newest = newest_of_py_spy(py_spy)
    assert newest is not None
    assert newest >= 13
    assert newest_of_py_spy(os.devnull) is None
    root = recorded(tmp_path, scope="0", uid=os.geteuid(), owner=os.geteuid())
    (root / "proc/77/syscall").chmod(0o600)
    (root / "proc/77/maps").write_text(f"0-1 r-xp 0 0 0 /usr/lib/libpython3.{newest + 1}.so.1.0\n")
    check = by_probe(preflight(77, root))["stacks"]
    assert check.state == "no"
    assert f"Python 3.{newest + 1}" in check.reason
    assert "upgrade py-spy" in check.enable
    assert "Without stacks" in check.reason


def test_an_own_process_needs_no_more_rights() -> None:
    assert rights_over(os.getpid()).trace
