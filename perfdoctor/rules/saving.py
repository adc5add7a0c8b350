"""Writing: checkpoints and logs."""

import math

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Facts
from perfdoctor.rules.finding import REPORTED, finding, freed
from perfdoctor.rules.lookups import hot_line, hot_path, is_read_by_another
from perfdoctor.rules.storage import file_system
from perfdoctor.rules.wording import percent, takes

# A cost that nobody needs to look at any more: the level below which nothing is reported.
_BEARABLE = REPORTED

# No storage is faster than memory.
_IN_MEMORY = ("tmpfs", "ramfs")

_SAVE_BEHIND = """\
state = {name: value.detach().to('cpu', copy=True) for name, value in model.state_dict().items()}
if saving is not None: saving.result()
saving = saver.submit(torch.save, state, path)  # saver = ThreadPoolExecutor(1)"""
_SAVE_TOGETHER = """\
from torch.distributed.checkpoint import async_save
# needs a CPU backend too: init_process_group('cpu:gloo,cuda:nccl')
if saving is not None: saving.result()
saving = async_save({'model': model.state_dict()}, checkpoint_id=folder)"""


def times_rarer(share: float, bearable: float = _BEARABLE) -> int:
    """How many times more rarely something must happen until its share of the time is bearable."""
    rest = max(1 - share, 0.01)
    return max(2, math.ceil(share * (1 - bearable) / (bearable * rest)))


_FASTER_STORAGE = Fix(
    "Save to faster storage first",
    "A copy to a fast local disk, moved on by another process, frees the step sooner.",
    "torch.save(state, f'{local}/checkpoint.pt')  # then rsync in the background",
)


def checkpoint_write(facts: Facts) -> Finding | None:
    """Saving state."""
    cause = "io.checkpoint_write"
    share = facts.share(cause)
    if share < REPORTED:
        return None
    path = hot_path(facts, cause)
    line = f" It is done at {hot_line(facts, cause)}." if hot_line(facts, cause) else ""
    rarer = times_rarer(share)
    fixes = [
        Fix(
            "Save while training goes on",
            f"The trainer stands still while {path or 'a checkpoint'} is written: {percent(share)} of the "
            f"time.{line} Only the copy in memory must be made in the step.",
            _SAVE_TOGETHER if len(facts.trainers) > 1 else _SAVE_BEHIND,
            freed(share, share),  # in the background the writes still take as long as now
        ),
        Fix(
            f"Save {rarer} times less often",
            f"At the present pace of saving {percent(share)} of the time goes there; {rarer} times rarer "
            f"leaves less than {percent(_BEARABLE)}.",
            f"if step % ({rarer} * save_every) == 0: save(...)",
            freed(share * (1 - 1 / rarer)),
        ),
    ]
    if file_system(facts, path) not in _IN_MEMORY:
        fixes.append(_FASTER_STORAGE)
    return finding(
        facts,
        cause,
        takes(facts, cause, "Saving checkpoints"),
        ("written_to_storage", "written_by_calls", "device_written", "device_busy"),
        fixes,
        "Leave saving out for some hundred steps: if the pace stays the same, it is not the cause.",
    )


_NO_FLUSH = Fix(
    "Do not flush every line to the disk",
    "A flush hands the line to the system; fsync, and a file opened for synchronous writing, wait for the device.",
    "log = open(path, 'a', buffering=1 << 16)  # no flush(), no os.fsync() in the step",
)
_FASTER_READER = Fix(
    "Let whoever reads the log keep up",
    "It is written into a pipe or a connection, which is full: a line waits until the program at the other end has "
    "read others.",
    "python train.py >> train.log 2>&1  # instead of a pipe: a file, which tail -F may follow\n"
    "logging.FileHandler(path)          # instead of a connection: a file, which the collector reads by itself",
)


def log_write(facts: Facts) -> Finding | None:
    """Writing logs and metrics."""
    cause = "io.log_write"
    share = facts.share(cause)
    if share < REPORTED:
        return None
    path, line = hot_path(facts, cause), hot_line(facts, cause)
    rarer = times_rarer(share)
    fixes = [
        Fix(
            f"Log {rarer} times less often",
            f"Writing {path or 'the log'} takes {percent(share)} of the "
            f"time{f', at {line}' if line else ''}.",
            f"if step % {rarer} == 0: log(...)",
            freed(share * (1 - 1 / rarer)),
        ),
        _FASTER_READER if is_read_by_another(facts, cause) else _NO_FLUSH,
        Fix(
            "Write from another thread",
            "The step then only queues the record.",
            "from logging.handlers import QueueHandler, QueueListener\n"
            "records = queue.SimpleQueue(); logger.addHandler(QueueHandler(records))\n"
            "QueueListener(records, handler).start()  # handler: the one that is slow now",
        ),
    ]
    return finding(
        facts,
        cause,
        takes(facts, cause, "Writing logs"),
        ("write_calls", "written_to_storage", "device_busy", "exposed_rest", "overlap"),
        fixes,
        "Leave logging out, or send the log to /dev/null: if the pace stays the same, writing it is not the cause.",
    )


SAVING_RULES = (checkpoint_write, log_write)
