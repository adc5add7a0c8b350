"""Prints its pid, then computes for a minute: python (a loop in the interpreter), matmul (torch), backward (a thread
that is named as autograd's, started a little later, while the main thread sleeps), on_gpu (the same without a name,
beside a thread that is named as one of CUDA's driver), or signals (in the interpreter; says how many it was sent)."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

END = time.monotonic() + 60


def count() -> None:
    while time.monotonic() < END:
        total = 0
        for number in range(10000):
            total += number * number % 7


def name_thread(name: str) -> None:
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)


def pass_backward() -> None:
    name_thread("pt_autograd_0")
    count()


def handle_events() -> None:
    name_thread("cuda-EvtHandlr")
    time.sleep(60)


def count_signals() -> None:
    """Of each that the kernel delivers a byte is written; Python's own handlers are not called for each."""
    came, comes = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(comes)
    signal.signal(signal.SIGRTMIN, lambda *_: None)

    def tell(*_: object) -> None:
        print(os.read(came, 65536).count(signal.SIGRTMIN), flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, tell)
    print(os.getpid(), flush=True)
    count()


if sys.argv[1] == "signals":
    count_signals()
elif sys.argv[1] == "python":
    print(os.getpid(), flush=True)
    count()
elif sys.argv[1] == "backward":
    print(os.getpid(), flush=True)
    time.sleep(0.5)
    threading.Thread(target=pass_backward, daemon=True).start()
    time.sleep(60)
elif sys.argv[1] == "on_gpu":
    threading.Thread(target=handle_events, daemon=True).start()
    threading.Thread(target=count, daemon=True).start()
    print(os.getpid(), flush=True)
    time.sleep(60)
else:
    import torch

    torch.set_num_threads(1)
    left = torch.randn(512, 512)
    left @ left
    print(os.getpid(), flush=True)
    while time.monotonic() < END:
        left @ left
