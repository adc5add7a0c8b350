"""Input and output: reading from storage and networks, paging, and writing checkpoints and logs."""

import shlex

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports import text
from perfdoctor.reports.english.phrases import amount, one_in, percent, then


def reading() -> str:
    return "Reading from storage"


def reading_refuted() -> str:
    return (
        "Read the same files twice in a row: if the second pass, from the page cache, is as slow as the first, storage "
        "is not the cause."
    )


def fewer_bytes(*, share: float, no_more_workers: str | None) -> Fix:
    return Fix(
        "Read fewer bytes",
        f"Reading holds the job up for {percent(share)} of the time.{then(no_more_workers)}",
        "Store samples smaller: compressed, resized to the training size, as uint8 or float16.",
    )


def raise_limit(*, used: float, writes: bool, operations: bool) -> Fix:
    verb, kind = ("write", "IOWrite") if writes else ("read", "IORead")
    what = f"{'requests' if operations else 'bytes'} per second that it may {verb}"
    docker = f"--device-{verb}-{'iops' if operations else 'bps'}"
    return Fix(
        "Raise the control group's limit for this storage",
        f"Where it waits, the job uses {percent(used)} of the {what}: requests are held back before the device.",
        f"systemctl set-property job.service '{kind}{'IOPS' if operations else 'Bandwidth'}Max=/dev/vda infinity'\n"
        f"# with the names of the job's unit and of its device; Docker: docker run without {docker}",
    )


def limit_reached() -> str:
    return "More workers will not help: they share the limit of their control group."


def held_back(*, busy: float, share: float) -> str:
    return (
        f"More workers will hardly help: readers wait for {percent(share)} of the time, but the device had requests "
        f"under way for only {percent(busy)} of it. Something in between holds requests back, such as a limit of a "
        "control group above this container."
    )


def device_full(*, busy: float) -> str:
    return f"More workers will not help: the device had requests under way for {percent(busy)} of the time."


def mapped_pieces(*, faults: Evidence) -> Fix:
    return Fix(
        "Read mapped files in larger pieces",
        f"Most bytes come through page faults of a mapped file ({amount(faults)}), a few pages at a time, and not "
        "through read calls. One call asks for a whole sample. Or shuffle blocks of neighbouring samples instead of "
        "single ones.",
        "file = os.open(path, os.O_RDONLY)  # once in each worker, in place of the map\n"
        "os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead beyond the sample\n"
        "sample = numpy.frombuffer(os.pread(file, size, offset), dtype)",
    )


def buffered_reads(*, line: str, size: float, rate: float, share: float) -> Fix:
    return Fix(
        f"Read many bytes at a time at {line}",
        f"The job makes {rate:,.0f} read calls a second for {text.size(size)} each. The calls alone take "
        f"{percent(share)} of the time; a buffer fetches many bytes in one. Files are opened with one unless told "
        "otherwise, pipes and sockets as below.",
        'file = open(path, "rb", buffering=1 << 20)\n'
        "pipe = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=1 << 20).stdout\n"
        'lines = connection.makefile("rb", buffering=1 << 20)',
    )


def larger_files(*, size: float, rate: float | None) -> Fix:
    calls = f" ({rate:,.0f} calls a second)" if rate is not None else ""
    return Fix(
        "Pack samples into larger files",
        f"Each read call asks for {text.size(size)} on average{calls}: what costs is the number of requests.",
        "Write samples into shards of 100 MB or more (tar with WebDataset, Parquet, LMDB) and read a shard in order, "
        "shuffling within a buffer.",
    )


def copy_to_local(*, path: str, system: str, available: float | None) -> Fix:
    memory = f", of which {available / 1000:,.1f} GB are available" if available is not None else ""
    return Fix(
        "Copy the data to local storage before training",
        f"{path} is on a network file system ({system}). A local NVMe disk serves small reads in a tenth of a "
        "millisecond, a server in several.",
        f"rsync -a {_folder(path)} $TMPDIR/   # then train from there\n"
        f"rsync -a {_folder(path)} /dev/shm/  # or in memory{memory}",
    )


def keep_in_memory(*, path: str | None, available: float | None) -> Fix:
    room = f" {available / 1000:,.1f} GB of memory is available." if available is not None else ""
    return Fix(
        "Keep the data in memory, if it fits",
        f"The reads reach the device instead of the page cache.{room}",
        f"du -sh {_folder(path)}\n"
        f"find {_folder(path)} -type f -exec cat {{}} + > /dev/null   # once, before training: fills the page cache",
    )


def part_per_host(*, refaults: float) -> Fix:
    return Fix(
        "Train on a part of the data per host",
        f"The page cache is too small for the data: {refaults:,.0f} pages each second are read again soon after they "
        "were dropped.",
        "Give each host its own fixed share of the files, small enough for its memory.",
    )


def _folder(path: str | None) -> str:
    """The folder of a path, safe to paste into a shell."""
    return shlex.quote(path.rpartition("/")[0] or "/") if path else "DATA"


def fetching() -> str:
    return "Waiting for data from the network"


def fetching_refuted() -> str:
    return (
        "Serve the same samples from local files: if the pace stays the same, the network is not what holds the job up."
    )


def at_the_same_time(*, received: Evidence | None) -> Fix:
    rate = f" They deliver {amount(received)}." if received is not None else ""
    return Fix(
        "Fetch the samples of a batch at the same time",
        f"A reader spends its time waiting for answers, not computing: many can wait at once without more cores.{rate}",
        "def __getitems__(self, indices):  # DataLoader calls it with the whole batch\n"
        "    return list(self._pool.map(self._fetch, indices))  # self._pool = ThreadPoolExecutor(32), made in the "
        "worker",
    )


def local_copy() -> Fix:
    return Fix(
        "Keep a local copy",
        "What is fetched once need not be fetched again in the next epoch.",
        "Write each object to $TMPDIR/cache at its first use and look there first.",
    )


def larger_objects() -> Fix:
    return Fix(
        "Fetch fewer, larger objects over kept connections",
        "Every request waits at least one round trip; a new connection waits for two or three.",
        "Use shards of 100 MB or more, and one session per worker (requests.Session, urllib3.PoolManager).",
    )


def further_ahead(*, workers: int) -> Fix:
    return Fix(
        "Fetch further ahead",
        "By default each worker prepares two batches ahead; more hide answers that are late now and then, and take "
        "memory.",
        f"DataLoader(..., num_workers={workers}, prefetch_factor=8)",
    )


def paging() -> str:
    return "Paging memory in from swap"


def paging_refuted() -> str:
    return "Watch si in vmstat 1 while the job runs: if it stays 0, the job does not wait for swap."


def fewer_workers(*, workers: int) -> Fix:
    return Fix(
        f"Use fewer loader workers than {workers}, and fewer batches ahead",
        "Every worker holds its own copy of what it touches, and prefetch_factor batches ready.",
        f"DataLoader(..., num_workers={max(1, workers // 2)}, prefetch_factor=1)",
    )


def no_python_objects(*, workers: int) -> Fix:
    return Fix(
        "Keep the dataset out of Python objects",
        "Lists and dicts are copied into each worker page by page, since reading them changes their reference counts."
        if workers
        else "A Python object takes several times the memory of the numbers or letters that it holds.",
        "Hold names, labels and offsets in NumPy arrays or tensors; map large arrays: numpy.load(path, mmap_mode='r').",
    )


def more_memory(*, limit: float | None) -> Fix:
    capped = f" The control group may use {limit / 1e9:.3g} GB." if limit else ""
    return Fix(
        "Give the job more memory",
        f"Memory is short, so pages go to the swap device and back.{capped}",
        "swapon --show; free -h",
    )


def checkpoints() -> str:
    return "Saving checkpoints"


def checkpoints_refuted() -> str:
    return "Leave saving out for some hundred steps: if the pace stays the same, it is not the cause."


def save_behind(*, path: str | None, share: float, line: str | None, together: bool, gpu: bool) -> Fix:
    done = f" It is done at {line}." if line else ""
    backends = "# needs a CPU backend too: init_process_group('cpu:gloo,cuda:nccl')\n" if gpu else ""
    return Fix(
        "Save while training goes on",
        f"The trainer stands still while {path or 'a checkpoint'} is written: {percent(share)} of the time.{done} Only "
        "the state's copy in memory, the model's and the optimizer's, has to be made in the step.",
        f"""\
from torch.distributed.checkpoint import async_save
from torch.distributed.checkpoint.state_dict import get_state_dict
{backends}saving, group = [], torch.distributed.new_group(backend='gloo')  # once; a group for these messages alone
while saving: saving.pop().result()  # the last one is written; at the end of training too
model_state, optimizer_state = get_state_dict(model, optimizer)
state = {{'model': model_state, 'optimizer': optimizer_state}}
saving.append(async_save(state, checkpoint_id=folder, process_group=group))"""
        if together
        else """\
from concurrent.futures import ThreadPoolExecutor
saver, saving = ThreadPoolExecutor(1), []  # once, before training
def in_memory(state):
    if isinstance(state, torch.Tensor): return state.detach().to('cpu', copy=True)
    if isinstance(state, dict): return {name: in_memory(value) for name, value in state.items()}
    return [in_memory(value) for value in state] if isinstance(state, (list, tuple)) else state
while saving: saving.pop().result()  # the last one is written; at the end of training too
state = {'model': model.state_dict(), 'optimizer': optimizer.state_dict()}
saving.append(saver.submit(torch.save, in_memory(state), path))  # in place of torch.save(state, path)
# a function that also syncs or renames the file: submit that one, with in_memory(state)""",
    )


def save_less_often(*, share: float, times: int, bearable: float, loop: str, when: str) -> Fix:
    changes = {
        "lightning": f"ModelCheckpoint(..., every_n_train_steps={times} * every_n_train_steps)\n"
        f"# by epochs: every_n_epochs={times}",
        "transformers": f"TrainingArguments(..., save_steps={times} * save_steps)\n"
        "# with save_strategy='steps'; by epochs it saves after each",
    }
    return Fix(
        f"Save {times} times less often",
        f"Saving takes {percent(share)} of the time now; {times} times less often, it takes less than "
        f"{percent(bearable)}.",
        changes.get(loop, one_in(times, "save(...)", when)),
    )


def save_unpacked(*, share: float, package: str) -> Fix:
    arrays = "numpy.savez(path, **arrays)  # instead of numpy.savez_compressed"
    return Fix(
        "Save without compressing",
        f"Packing is most of the {percent(share)} of the time that saving takes: it works on one core, and weights "
        "hardly get smaller (20 MB of random numbers took zlib 0.53 s instead of 0.02, for 7% less; a lower level of "
        "compression takes hardly less).",
        arrays if package == "numpy" else 'file = open(path, "wb")',
    )


def faster_storage() -> Fix:
    return Fix(
        "Save to faster storage first",
        "A copy to a fast local disk, moved on by another process, frees the step sooner.",
        "torch.save(state, f'{local}/checkpoint.pt')  # then rsync in the background",
    )


def logs() -> str:
    return "Logging (metrics, pictures, output)"


def logs_refuted() -> str:
    return "Leave logging out, or send the log to /dev/null: if the pace stays the same, writing it is not the cause."


def log_less_often(*, path: str | None, share: float, line: str | None, times: int, loop: str, when: str) -> Fix:
    by_hand = f"if {{}} % {times} == 0: log(...)"
    callback = "\n# what a callback of the job's own writes: "
    changes = {
        "lightning": f"Trainer(..., log_every_n_steps={times} * log_every_n_steps)"
        f"{callback}{by_hand.format('trainer.global_step')}",
        "transformers": f"TrainingArguments(..., logging_steps={times} * logging_steps)"
        f"{callback}{by_hand.format('state.global_step')}",
    }
    return Fix(
        f"Log {times} times less often",
        f"Writing {path or 'logs, metrics or pictures'} takes {percent(share)} of the time"
        f"{f', at {line}' if line else ''}.",
        changes.get(loop, one_in(times, "log(...)", when)),
    )


def quiet_library(*, package: str, line: str | None, share: float) -> Fix:
    return Fix(
        f"Do not log what {package} notes down for debugging",
        f"{percent(share)} of the time goes into records that {package} makes while it does its work"
        f"{f' at {line}' if line else ''}. Where the root logger's level is DEBUG, it takes those of all libraries.",
        f"logging.getLogger({package!r}).setLevel(logging.WARNING)  # once, before training",
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
        "# instead of a connection: logging.FileHandler(path), a file which the collector reads by itself",
    )


def another_thread(*, logger: bool) -> Fix:
    return Fix(
        "Write from another thread",
        "The step then only queues the record.",
        """\
import queue
from logging.handlers import QueueHandler, QueueListener
records, slow = queue.SimpleQueue(), list(logger.handlers)
logger.handlers = [QueueHandler(records)]  # instead of the slow ones, which the listener serves
QueueListener(records, *slow, respect_handler_level=True).start()  # stop() it at the end"""
        if logger
        else """\
from concurrent.futures import ThreadPoolExecutor
writer = ThreadPoolExecutor(1)  # once, before training
writer.submit(log, record)  # in place of log(record), of print(record) too""",
    )
