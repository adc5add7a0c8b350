"""What perfdoctor's timer makes of torch's test backend: each result is a line of JSON."""

# ruff: noqa: TID253
import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from perfdoctor.probes.inside.device_clock import DeviceTimer, current_accelerator
from tests.targets.played_device import PlayedDevice


def say(**values):
    print(json.dumps(values), flush=True)


def main():
    unused = current_accelerator() is None
    device = PlayedDevice()
    accelerator = current_accelerator()
    timer, times = DeviceTimer(accelerator), []
    # The device works for 80 ms between the marks, and nobody waits for it.
    begun = time.monotonic_ns()
    timer.mark(times.append)
    device.launch(80)
    timer.mark(times.append)
    timer.resolve()
    early = len(times)
    asked = time.monotonic_ns()
    timer.drain()
    drained = time.monotonic_ns()
    say(name="marks", unused=unused, early=early, at=[one - begun for one in times], asked=asked - begun,
        drained=drained - begun, error=timer.error_ns)  # fmt: skip
    # Where the device is far behind, marks are left out.
    small, few = DeviceTimer(accelerator, pool=3), []
    device.launch(50)
    for _ in range(5):
        small.mark(few.append)
    skipped = small.skipped
    small.drain()
    say(name="pool", skipped=skipped, marked=len(few))
    # Events are used again, and the order of marks is kept.
    again, many = DeviceTimer(accelerator, pool=8), []
    for _ in range(60):
        again.mark(many.append)
        device.launch(2)
        again.mark(many.append)
        again.mark(many.append)
        torch.accelerator.synchronize()
        again.resolve()
    busy = sorted(end - start for start, end in zip(many[0::3], many[1::3], strict=True))
    say(name="again", skipped=again.skipped, ordered=many == sorted(set(many)), busy=busy[len(busy) // 2],
        drift=again.drift())  # fmt: skip


if __name__ == "__main__":
    main()
