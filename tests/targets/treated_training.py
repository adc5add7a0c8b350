"""Trains a small model on a loader, in a way that its arguments choose, and prints what its settings are in the end."""

import argparse
import functools
import gc
import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--objects", type=int, default=0, help="collected after each step")
    parser.add_argument("--crash-with", default="", help="this loader argument, as `num_workers`, is not to be 0")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--orphan", type=Path, help="leave a process behind, and write its number here")
    parser.add_argument("--tell-cores", type=Path, help="where loader workers write their cores and how they started")
    parser.add_argument("--save", type=Path, help="where to save after each step")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(options.threads)
    rows = torch.randn(64, 3, 8, 8)
    tell = functools.partial(tell_cores, options.tell_cores) if options.tell_cores else None
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=8, worker_init_fn=tell)
    if options.crash_with and getattr(loader, options.crash_with):
        raise RuntimeError("this job wants no such thing")
    if options.orphan:
        leave_behind(options.orphan)
    kept = [{"number": [number]} for number in range(options.objects)]
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 1))
    optimizer = torch.optim.Adam(model.parameters())
    batches, losses = set(), []
    while len(losses) < options.steps:
        for (batch,) in loader:
            batches.add(batch.data_ptr())
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if options.objects:
                gc.collect()
            if options.save:
                torch.save(model.state_dict(), options.save)
                torch.load(options.save)
    told = {
        "losses": losses,
        "kept": len(kept),
        "workers": loader.num_workers,
        "persistent": loader.persistent_workers,
        "fused": optimizer.defaults["fused"],
        "cores": sorted(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "frozen": gc.get_freeze_count(),
        "threshold": gc.get_threshold(),
        "channels_last": model[0].weight.is_contiguous(memory_format=torch.channels_last),
        "call_restored": torch.nn.Module.__call__ is torch.nn.Module._wrapped_call_impl,
        "users_own": os.environ.get("USERS_OWN"),
        "path": sys.path,
    }
    print(json.dumps(told))


def tell_cores(file: Path, _: int) -> None:
    """Where a loader worker may run, and how it was started."""
    told = {
        "cores": sorted(os.sched_getaffinity(0)),
        "method": type(multiprocessing.current_process()).__name__,
        "parent has torch": "libtorch" in Path(f"/proc/{os.getppid()}/maps").read_text(),
    }
    file.write_text(json.dumps(told))


def leave_behind(file: Path) -> None:
    """A process in a session of its own that Ctrl-C does not end."""
    code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    parent = (
        "import subprocess, sys; "
        f"print(subprocess.Popen([sys.executable, '-c', {code!r}], start_new_session=True, stdout=-3, stderr=-3).pid)"
    )
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    file.write_text(done.stdout)
    time.sleep(0.1)


if __name__ == "__main__":
    main()
