"""Trains on rows that are read from a folder, past the page cache: as if the data were larger than memory."""

import argparse
import json
import os
from pathlib import Path

ROW = 4096


def main() -> None:
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--told", type=Path, help="where to write what it sees of its data")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    files = sorted(options.data.glob("*.bin"))
    if options.told:
        options.told.write_text(json.dumps(what_is_seen(files[0])))
    model = torch.nn.Linear(ROW, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step in range(options.steps):
        rows = [read(files[row % len(files)], step * 7 + row) for row in range(32)]
        batch = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8).view(-1, ROW).float() / 255
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not step:
            print(f"ready {os.getpid()}", flush=True)


def read(file: Path, row: int) -> bytes:
    """A row of a file, and nothing of it stays in the page cache."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        place = row * ROW % os.fstat(descriptor).st_size
        data = os.pread(descriptor, ROW, place)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return data
    finally:
        os.close(descriptor)


def what_is_seen(file: Path) -> dict[str, object]:
    """On which device a file lies, by which path, and whether it can be written."""
    try:
        with file.open("ab"):
            refused = ""
    except OSError as error:
        refused = error.strerror
    in_memory = os.stat(file).st_dev == os.stat("/dev/shm").st_dev
    return {"in memory": in_memory, "path": str(file.resolve()), "refused": refused}


if __name__ == "__main__":
    main()
