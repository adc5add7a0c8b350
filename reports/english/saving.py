"""Writing: checkpoints and logs."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import percent


def checkpoints() -> str:
    return "Saving checkpoints"


def checkpoints_refuted() -> str:
    return "Leave saving out for some hundred steps: if the pace stays the same, it is not the cause."


def save_behind(*, path: str | None, share: float, line: str | None, ranks: int) -> Fix:
    done = f" It is done at {line}." if line else ""
    return Fix(
        "Save while training goes on",
        f"The trainer stands still while {path or 'a checkpoint'} is written: {percent(share)} of the time.{done} Only "
        "the copy in memory must be made in the step.",
        "from torch.distributed.checkpoint import async_save\n"
        "# needs a CPU backend too: init_process_group('cpu:gloo,cuda:nccl')\n"
        "if saving is not None: saving.result()\n"
        "saving = async_save({'model': model.state_dict()}, checkpoint_id=folder)"
        if ranks > 1
        else "state = {name: value.detach().to('cpu', copy=True) for name, value in model.state_dict().items()}\n"
        "if saving is not None: saving.result()\n"
        "saving = saver.submit(torch.save, state, path)  # saver = ThreadPoolExecutor(1)",
    )


def save_less_often(*, share: float, times: int, bearable: float) -> Fix:
    return Fix(
        f"Save {times} times less often",
        f"At the present pace of saving {percent(share)} of the time goes there; {times} times rarer leaves less than "
        f"{percent(bearable)}.",
        f"if step % ({times} * save_every) == 0: save(...)",
    )


def faster_storage() -> Fix:
    return Fix(
        "Save to faster storage first",
        "A copy to a fast local disk, moved on by another process, frees the step sooner.",
        "torch.save(state, f'{local}/checkpoint.pt')  # then rsync in the background",
    )


def logs() -> str:
    return "Writing logs"


def logs_refuted() -> str:
    return "Leave logging out, or send the log to /dev/null: if the pace stays the same, writing it is not the cause."


def log_less_often(*, path: str | None, share: float, line: str | None, times: int) -> Fix:
    return Fix(
        f"Log {times} times less often",
        f"Writing {path or 'the log'} takes {percent(share)} of the time{f', at {line}' if line else ''}.",
        f"if step % {times} == 0: log(...)",
    )


def no_flush() -> Fix:
    return Fix(
        "Do not flush every line to the disk",
        "A flush hands the line to the system; fsync, and a file opened for synchronous writing, wait for the device.",
        "log = open(path, 'a', buffering=1 << 16)  # no flush(), no os.fsync() in the step",
    )


def faster_reader() -> Fix:
    return Fix(
        "Let whoever reads the log keep up",
        "It is written into a pipe or a connection, which is full: a line waits until the program at the other end has "
        "read others.",
        "python train.py >> train.log 2>&1  # instead of a pipe: a file, which tail -F may follow\n"
        "logging.FileHandler(path)          # instead of a connection: a file, which the collector reads by itself",
    )


def another_thread() -> Fix:
    return Fix(
        "Write from another thread",
        "The step then only queues the record.",
        "from logging.handlers import QueueHandler, QueueListener\n"
        "records = queue.SimpleQueue(); logger.addHandler(QueueHandler(records))\n"
        "QueueListener(records, handler).start()  # handler: the one that is slow now",
    )
