"""Prints its pid, then computes for a minute: python (a loop in the interpreter) or matmul (torch)."""

import os
import sys
import time

END = time.monotonic() + 60
if sys.argv[1] == "python":
    print(os.getpid(), flush=True)
    while time.monotonic() < END:
        total = 0
        for number in range(10000):
            total += number * number % 7
else:
    import torch

    torch.set_num_threads(1)
    left = torch.randn(512, 512)
    left @ left
    print(os.getpid(), flush=True)
    while time.monotonic() < END:
        left @ left
