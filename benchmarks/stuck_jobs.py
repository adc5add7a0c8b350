"""Jobs that hang in a planted way, and jobs that only step slowly. `benchmarks/stuck.py` runs them and counts.

    python benchmarks/stuck_jobs.py NAME [RANKS]

starts the ranks as torchrun does, one process each with RANK and WORLD_SIZE in its environment. The ranks train
together for some steps; then, in rank CULPRIT, one of the functions here runs in the middle of a step. `ready PID` is
printed when it does. What hangs hangs for ever: end it with a signal to the process group.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import hashlib
import multiprocessing
import os
import pty
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch  # noqa: TID253
import torch.distributed as dist  # noqa: TID253
from torch.distributed.elastic.control_plane import worker_main  # noqa: TID253
from torch.utils.data import DataLoader, Dataset  # noqa: TID253

STEPS = 3
FOLDER = Path(os.environ.get("STUCK_FOLDER", tempfile.gettempdir()))
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
CULPRIT = WORLD - 1


def ready() -> None:
    """Tells the launcher that this rank has come to where it hangs."""
    (FOLDER / f"ready.{RANK}").write_text(str(os.getpid()))


# --- what one rank does while the others wait for it in all_reduce ---------------------------------------------------


def lock_order() -> None:
    """Two threads take two locks in opposite order."""
    first, second, taken = threading.Lock(), threading.Lock(), threading.Event()

    def other() -> None:
        with second:
            taken.set()
            with first:
                pass

    with first:
        threading.Thread(target=other, daemon=True).start()
        taken.wait()
        with second:
            pass


def held_at_fork() -> None:
    """A child is forked while a thread holds a lock, and wants that lock; its parent waits for it."""
    lock, taken = threading.Lock(), threading.Event()

    def holder() -> None:
        with lock:
            taken.set()
            time.sleep(5)

    threading.Thread(target=holder, daemon=True).start()
    taken.wait()
    child = multiprocessing.get_context("fork").Process(target=lock.acquire)
    child.start()
    child.join()


def killed_holder() -> None:
    """A process is killed while it holds a lock that this one wants."""
    context = multiprocessing.get_context("fork")
    lock, taken = context.Lock(), context.Event()

    def holder() -> None:
        lock.acquire()
        taken.set()
        signal.pause()

    child = context.Process(target=holder)
    child.start()
    taken.wait()
    child.kill()
    child.join()
    lock.acquire()


def dead_prefetcher() -> None:
    """The thread that fills a queue has ended with an exception, and this one waits for the next batch."""
    batches: queue.Queue[torch.Tensor] = queue.Queue()
    threading.excepthook = lambda _: None

    def prefetch() -> None:
        raise ValueError("a damaged sample")

    threading.Thread(target=prefetch).start()
    batches.get()


def killed_pool_worker() -> None:
    """A worker of a pool is killed (out of memory, for instance) with a task in its hands: the result never comes."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(_killed, [0])


def _killed(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def locked_file() -> None:
    """Another process holds the lock of a file."""
    path = FOLDER / "cache.lock"
    with _holder(path, "flock"), path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


@contextmanager
def _holder(path: Path, lock: str) -> Iterator[None]:
    """Another process that holds the lock of a file, which it took with this function."""
    code = (
        f"import fcntl, time; f = open({str(path)!r}, 'w'); fcntl.{lock}(f, 2); print(1, flush=True); time.sleep(9e4)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield


def silent_fifo() -> None:
    """Somebody has a named pipe open for writing, and writes nothing."""
    path = FOLDER / "batches"
    os.mkfifo(path)
    code = f"import time; f = open({str(path)!r}, 'wb'); time.sleep(9e4)"
    with subprocess.Popen([sys.executable, "-c", code]), path.open("rb") as file:
        file.read(1)


def own_pipe() -> None:
    """A child that was to write into a pipe has ended; the reader has the pipe's other end open itself."""
    reading, _writing = os.pipe()
    subprocess.run(["true"], check=True)
    os.read(reading, 1)


def unread_output() -> None:
    """Standard output is a pipe that nobody reads."""
    while True:
        print("loss 0.1234 " * 1000, flush=True)


@contextmanager
def _server(does: str) -> Iterator[int]:
    """A program that listens on this host at the port, as ``s``, and then does something."""
    code = "import socket, time\ns = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
    with subprocess.Popen([sys.executable, "-c", code + does], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())


_SAYS_NOTHING = "c = s.accept(); time.sleep(9e4)"


def silent_server() -> None:
    """A server on this host accepts a request and never answers."""
    with _server(_SAYS_NOTHING) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /batch\n")
        connection.recv(1)


def dropped_connection() -> None:
    """A connection attempt that nobody answers: the server's queue is full."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    waiting = []
    for _ in range(3):
        waiting.append(socket.socket())
        waiting[-1].setblocking(False)
        waiting[-1].connect_ex(server.getsockname())
    time.sleep(0.2)
    with socket.socket() as last:
        last.connect(server.getsockname())


def forgotten_breakpoint() -> None:
    """A breakpoint waits for somebody to type."""
    _terminal()
    breakpoint()


def asks_on_terminal() -> None:
    """A question that nobody answers."""
    _terminal()
    input("Overwrite the folder? [y/n] ")


def _terminal() -> None:
    """Gives this process a terminal to read from."""
    _, inner = pty.openpty()
    os.dup2(inner, 0)
    sys.stdin = os.fdopen(0)
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - as long as the process lives


def traced() -> None:
    """A debugger of C has stopped the process."""
    libc = "import ctypes, sys, time; ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0); time.sleep(9e4)"
    subprocess.Popen([sys.executable, "-c", libc, str(os.getpid())])
    time.sleep(9e4)


def stopped() -> None:
    """Somebody has pressed Ctrl-Z, or a scheduler has suspended the job."""
    os.kill(os.getpid(), signal.SIGSTOP)


def handler_waits() -> None:
    """After an exception the rank stays, for somebody to look at it."""
    try:
        raise ValueError("loss is nan")
    except ValueError:
        time.sleep(9e4)


def handler_reports() -> None:
    """After an exception the rank tells a server of it that does not answer."""
    try:
        raise RuntimeError("out of memory")
    finally:
        silent_server()


def at_exit() -> None:
    """The rank has ended its script, and waits at exit for what never comes."""
    atexit.register(threading.Event().wait)
    sys.exit(1)


def thread_at_exit() -> None:
    """The rank has ended its script, and waits for a thread that does not end."""
    threading.Thread(target=threading.Event().wait).start()
    sys.exit(1)


def endless_loop() -> None:
    """A loop whose end never comes."""
    position, found = 0, -1
    while found < 0:
        position = (position + 1) % 977
        if position == 977:
            found = position


def holds_gil() -> None:
    """A thread calls a C function that waits, and keeps the GIL."""
    pause = ctypes.PyDLL(None).pause
    threading.Timer(0.2, pause).start()
    while True:
        time.sleep(0.01)


def waits_for_file() -> None:
    """It looks again and again for a file that never comes."""
    while not (FOLDER / "done").exists():
        time.sleep(0.2)


def waits_for_child() -> None:
    """It waits for a program that waits for input itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]})).recv(1)"
        subprocess.run([sys.executable, "-c", code], check=True)


def dead_file_server() -> None:
    """A file system whose server does not answer, as NFS behind a cut line: FUSE without anybody at its device."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder = FOLDER / "share"
    folder.mkdir()
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    # Mounts of its own, which end with it: CLONE_NEWNS, then MS_REC | MS_PRIVATE.
    failed = libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 0x4000 | 1 << 18, None)
    if failed or libc.mount(b"share", str(folder).encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    (folder / "batch.bin").read_bytes()


def _loader(act: Callable[[], None]) -> Iterator[torch.Tensor]:
    class Samples(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> torch.Tensor:
            if index >= 4:
                act()
            return torch.zeros(8)

    return iter(DataLoader(Samples(), batch_size=2, num_workers=1))


def stopped_worker() -> None:
    """A loader worker is stopped."""
    for _ in _loader(lambda: os.kill(os.getpid(), signal.SIGSTOP)):
        pass


def worker_in_lock() -> None:
    """A loader worker wants a lock that a thread of the trainer held when the worker was forked."""
    lock, taken = threading.Lock(), threading.Event()

    def holder() -> None:
        with lock:
            taken.set()
            time.sleep(9e4)

    threading.Thread(target=holder, daemon=True).start()
    taken.wait()

    def use() -> None:
        with lock:
            pass

    for _ in _loader(use):
        pass


def worker_in_pipe() -> None:
    """A loader worker reads from a program that says nothing."""
    for _ in _loader(lambda: print(subprocess.run(["sleep", "90000"], capture_output=True, check=True).stdout)):
        pass


def lock_beside_monitors() -> None:
    """As ``lock_order``, while another rank has a monitor, and a thread of it starts programs now and then."""
    if RANK == CULPRIT:
        lock_order()
    looks = "import os, time\nwhile True: os.getloadavg(); time.sleep(2)"
    subprocess.Popen([sys.executable, "-c", looks])

    def asks() -> None:
        while True:
            subprocess.run(["ps", "aux"], stdout=subprocess.PIPE, check=True)
            time.sleep(3)

    threading.Thread(target=asks, daemon=True).start()


def lock_beside_threads() -> None:
    """As ``lock_order``, while each rank has a thread of its own that looks at something several times a second."""

    def looks() -> None:
        while True:
            sum(range(300_000))
            time.sleep(0.1)

    def waits_and_looks() -> None:
        while not threading.Event().wait(0.2):
            sum(range(300_000))

    for one in (looks, waits_and_looks):
        threading.Thread(target=one, daemon=True).start()
    if RANK == CULPRIT:
        lock_order()


def queue_beside_monitor() -> None:
    """A queue whose filler has failed, in a rank that has started a monitor which computes a little each second."""
    batches: queue.Queue[bytes] = queue.Queue()
    filler = threading.Thread(target=lambda: None, daemon=True)
    filler.start()
    filler.join()
    looks = "import time\nwhile True: sum(range(3_000_000)); time.sleep(0.5)"
    subprocess.Popen([sys.executable, "-c", looks])
    batches.get()


# --- ranks that do not do the same ------------------------------------------------------------------------------------


def other_collective() -> None:
    """The last rank is in another collective than all others."""
    dist.broadcast(torch.zeros(64), src=0)


def fewer_batches() -> None:
    """The last rank has had its last batch, and waits for all others at the end of the epoch."""
    dist.barrier()


def both_receive() -> None:
    """Each rank waits for a message of the other."""
    dist.recv(torch.zeros(64), src=1 - RANK)


def all_stopped() -> None:
    """Whoever has started the job has stopped all of it."""
    stopped()


def other_group() -> None:
    """Each rank enters a group of its own first, at the same line: only the Flight Recorder tells them apart."""
    groups = [dist.new_group() for _ in range(WORLD)]
    dist.all_reduce(torch.ones(8), group=groups[RANK])


def gone_rank() -> None:
    """The last rank has ended without a word, and the others wait in the store for what it was to write."""
    os._exit(0)


# --- jobs that only step slowly ---------------------------------------------------------------------------------------


def long_steps() -> None:
    """Steps of ten seconds, of the model's arithmetic."""
    model, matrix = torch.nn.Linear(700, 700), torch.randn(700, 700)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    while True:
        end, loss = time.monotonic() + 10, torch.zeros(())
        while time.monotonic() < end:
            loss = loss + model(matrix).square().mean() * 1e-3
            loss.backward()
            loss = loss.detach()
        optimizer.step()


def late_rank() -> None:
    """A rank prepares its batch for ten seconds in Python."""
    while True:
        words: dict[int, list[int]] = {}
        end = time.monotonic() + 10
        while time.monotonic() < end:
            words.setdefault(len(words), []).append(len(words))
        dist.all_reduce(torch.zeros(64))


def long_checkpoint() -> None:
    """A checkpoint goes to a store that takes 2 MB a second."""
    reading, writing = os.pipe()
    code = "import sys, time\nwhile sys.stdin.buffer.read1(65536): time.sleep(0.03)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=reading), os.fdopen(writing, "wb") as file:
        while True:
            torch.save({"weights": torch.randn(4_000_000)}, file)


def evaluation() -> None:
    """A long evaluation."""
    model, matrix = torch.nn.Linear(600, 600).eval(), torch.randn(600, 600)
    with torch.no_grad():
        while True:
            model(matrix).argmax(1).sum().item()


_SLOW_TO_COMPILE = '#include <regex>\n#include <map>\n#include <iostream>\nint main() { std::regex r("a+"); }\n'


def compilation() -> None:
    """A compiler works for minutes."""
    source = FOLDER / "kernel.cpp"
    source.write_text(_SLOW_TO_COMPILE)
    while True:
        subprocess.run(["g++", "-O2", "-o", str(FOLDER / "kernel"), str(source)], check=True)


def slow_download() -> None:
    """A server sends 20 kB a second."""
    sends = "c = s.accept()[0]\nwhile True: c.sendall(b'x' * 10000); time.sleep(0.5)"
    with _server(sends) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        while connection.recv(1 << 20):
            pass


def slow_worker() -> None:
    """A loader worker takes ten seconds for a batch."""

    def work() -> None:
        end, kept = time.monotonic() + 10, []
        while time.monotonic() < end:
            kept.append(bytes(1000))

    for _ in _loader(work):
        pass


def rare_answers() -> None:
    """A server answers after four seconds, each time."""
    answers = "c = s.accept()[0]\nwhile c.recv(9): time.sleep(4); c.sendall(b'x')"
    with _server(answers) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        while True:
            connection.sendall(b"batch")
            connection.recv(1)


def sleeping_steps() -> None:
    """A step sleeps for ten seconds, as one that waits for a quota does."""
    model = torch.nn.Linear(64, 64)
    while True:
        time.sleep(10)
        model(torch.randn(64, 64)).sum().backward()


# --- written after the mechanism was finished, and watched once before anything was changed for them ------------------


def full_queue() -> None:
    """A child puts more into a bounded queue than anybody takes out, and is waited for."""
    context = multiprocessing.get_context("fork")
    batches = context.Queue(1)
    child = context.Process(target=lambda: [batches.put(number) for number in range(10)])
    child.start()
    child.join()


def silent_child() -> None:
    """A message of a child that does not come, over multiprocessing's own connection."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    context.Process(target=lambda: (theirs, signal.pause())).start()
    ours.recv()


def record_lock() -> None:
    """Another process holds a lock on a record of a file."""
    path = FOLDER / "index"
    with _holder(path, "lockf"), path.open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)


def request_with_timeout() -> None:
    """A request over HTTP that gives up after ten minutes."""
    with _server(_SAYS_NOTHING) as port:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=600).read()


def gathers_objects() -> None:
    """The last rank gathers metrics as objects, in which the others take no part."""
    dist.all_gather_object([None] * WORLD, {"loss": 0.1})


def lock_over_request() -> None:
    """A thread holds a lock while it waits for a server."""
    lock, taken = threading.Lock(), threading.Event()

    def refresh() -> None:
        with lock:
            taken.set()
            silent_server()

    threading.Thread(target=refresh, daemon=True).start()
    taken.wait()
    lock.acquire()


def polled_queue() -> None:
    """It asks an empty queue once a second, again and again."""
    batches: queue.Queue[torch.Tensor] = queue.Queue()
    while True:
        try:
            batches.get(timeout=1)
        except queue.Empty:
            continue


def answer_on_input() -> None:
    """A question on standard input, which is a pipe."""
    input("Continue? ")


def backtracking() -> None:
    """A regular expression that tries all ways to match."""
    re.match("(a+)+$", "a" * 60 + "b")


def stopped_program() -> None:
    """It waits for a program that was stopped."""
    with subprocess.Popen(["sleep", "1"]) as program:
        program.send_signal(signal.SIGSTOP)
        program.wait()


def long_call() -> None:
    """One call of a library takes a minute."""
    torch.set_num_threads(1)
    torch.linalg.svd(torch.randn(6000, 6000))


def hashes_file() -> None:
    """A large file is hashed, in one function."""
    data = FOLDER / "data"
    data.write_bytes(os.urandom(1 << 24))
    while True:
        hashlib.sha256(data.read_bytes()).hexdigest()


def download_in_thread() -> None:
    """A thread downloads 20 kB a second, and the main thread waits for a batch of it."""
    batches: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=slow_download, daemon=True).start()
    batches.get()


def polls_compiler() -> None:
    """It looks twice a second whether a compiler is through."""
    source = FOLDER / "kernel.cpp"
    source.write_text(_SLOW_TO_COMPILE)
    with subprocess.Popen(["sh", "-c", f"while true; do g++ -O2 -o {FOLDER}/kernel {source}; done"]) as compiler:
        while compiler.poll() is None:
            time.sleep(0.5)


def long_pool_task() -> None:
    """A worker of a pool computes for a minute."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(_sums, [0])


def _sums(_: int) -> int:
    end, total = time.monotonic() + 100, 0
    while time.monotonic() < end:
        total += sum(range(10_000))
    return total


# What all ranks do, and not only the last one.
IN_ALL_RANKS = (lock_beside_monitors, lock_beside_threads, both_receive, other_group, all_stopped)


# --- ranks ------------------------------------------------------------------------------------------------------------


# Held open until the process ends: the server that gives dumps of the Flight Recorder.
answering = ExitStack()


def train(name: str) -> None:
    """One rank: some steps together, then what was planted."""
    torch.set_num_threads(1)
    if name in ("missing_rank", "unserved_store"):
        ready()
    if name == "unserved_store":  # as where torchrun starts a script that starts its ranks itself
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    if WORLD > 1:
        dist.init_process_group("gloo")
    if name == "other_group":
        answering.enter_context(worker_main())
    model = torch.nn.Linear(64, 64)
    if name == "in_backward":
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(STEPS + 1):
        if step == STEPS:
            ready()
            if RANK == CULPRIT or globals().get(name) in IN_ALL_RANKS:
                silent_fifo() if name == "in_backward" else globals()[name]()
            if name == "gone_rank":
                dist.PrefixStore("done", dist.distributed_c10d._get_default_store()).wait(["1"])
        optimizer.zero_grad()
        model(torch.randn(64, 64)).square().mean().backward()
        if WORLD > 1 and name != "in_backward":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()


def launch(name: str, ranks: int) -> None:
    """Starts the ranks, and waits until all are there; then for ever, as a launcher does that does not look."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        shared = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(ranks),
            "STUCK_FOLDER": folder,
        }
        started = list(range(ranks - 1 if name == "missing_rank" else ranks))
        outputs = {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE}
        command = [sys.executable, os.path.abspath(__file__), name]
        processes = [
            subprocess.Popen(
                command,
                env={
                    **os.environ,
                    **shared,
                    "RANK": str(rank),
                    "OMP_NUM_THREADS": "1",
                    "TORCH_WORKER_SERVER_SOCKET": f"{folder}/server.{rank}",
                },
                **outputs,
            )
            for rank in started
        ]
        while not all(Path(folder, f"ready.{rank}").exists() for rank in started):
            time.sleep(0.1)
            if any(process.poll() for process in processes):
                sys.exit("a rank has failed")
        print(f"ready {processes[-1].pid}", flush=True)
        processes[0].wait()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(sys.argv[1])
    else:
        launch(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2)
