"""Prints its pid, then computes for a minute: python (a loop in the interpreter), matmul (torch), or backward (a thread
that is named as autograd's, started a little later, while the main thread sleeps)."""

import os
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


def pass_backward() -> None:
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pt_autograd_0")
    count()


if sys.argv[1] == "python":
    print(os.getpid(), flush=True)
    count()
elif sys.argv[1] == "backward":
    print(os.getpid(), flush=True)
    time.sleep(0.5)
    threading.Thread(target=pass_backward, daemon=True).start()
    time.sleep(60)
else:
    import torch

    torch.set_num_threads(1)
    left = torch.randn(512, 512)
    left @ left
    print(os.getpid(), flush=True)
    while time.monotonic() < END:
        left @ left
