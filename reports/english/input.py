"""The input pipeline: preparing batches, starting workers, batch hand-over, and locks."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import percent, then
from perfdoctor.reports.english.slow_calls import CHEAPER_CALLS


def preparing() -> str:
    return "Preparing the input on the CPU"


def preparing_refuted() -> str:
    return (
        "Repeat one batch that is kept in memory for some steps: if the pace stays the same, the input is not what "
        "holds the job up."
    )


_CHEAPER = {
    "images": """\
image = Image.open(path)
image.draft('RGB', size)  # of a JPEG: decodes at 1/2, 1/4 or 1/8, but not below size
image = image.resize(size)  # before rotating, blurring and the like: fewer pixels for them""",
    "sound": "Keep the sound at the sample rate that the model takes, and read only the piece that is needed "
    "(soundfile.read with start and frames).",
    "video": "Keep short clips with frequent key frames at the size that the model takes, and decode only the frames "
    "that are needed (torchcodec's get_frames_at).",
    "text": """\
tokenizer = transformers.AutoTokenizer.from_pretrained(name, use_fast=True)  # in Rust; so is tiktoken
ids = tokenizer(texts)['input_ids']  # a whole batch in one call, not text by text""",
    "programs": "Starting a program takes some milliseconds each time. Read such files by a library in the process "
    "(torchcodec or PyAV instead of ffmpeg, soundfile instead of sox), hand many samples to one program, or let it go "
    "over all files once, before training.",
    "arrays": "Work on whole arrays instead of elements, and leave out what the model does not use.",
    "": "Replace loops over numbers by operations on whole arrays, loops over text by a tokenizer or parser "
    "written in C or Rust, and cache what is computed again and again (functools.lru_cache).",
    **CHEAPER_CALLS,
}
_ONCE = {
    "text": """\
tokens = [tokenize(text) for text in texts]  # once, before training
numpy.save('ids.npy', numpy.concatenate(tokens).astype(numpy.int64))
numpy.save('ends.npy', numpy.cumsum([len(one) for one in tokens]))
ids, ends = numpy.load('ids.npy', mmap_mode='r'), numpy.load('ends.npy')  # in training
one = torch.tensor(ids[ends[index - 1] if index else 0 : ends[index]])  # the tokens of one text""",
    "": """\
numpy.save(f'prepared/{index}.npy', sample)  # once: all that comes before what is drawn at random
sample = numpy.load(f'prepared/{index}.npy')  # in training; a dataset that is iterated over keeps its shards""",
}
_ONCE_IN_ARROW = """\
dataset = dataset.map(tokenize, batched=True, num_proc=8)  # once: the result is kept on disk
dataset = dataset.with_format('torch')"""


def cheaper(
    *,
    line: str | None,
    loader: bool,
    share: float,
    no_more_workers: str | None,
    call: str | None,
    part: float,
    kind: str,
) -> Fix:
    what = line or ("the dataset's transforms" if loader else "what prepares the input")
    named = f" {percent(part)} of that is in {call}." if call else ""
    return Fix(
        f"Make {what} cheaper",
        f"Preparing the input holds the trainer up for {percent(share)} of the time.{named}{then(no_more_workers)}",
        _CHEAPER[kind],
    )


def faster_server(*, server: str) -> Fix:
    return Fix(
        f"Let process {server} keep ahead",
        "It is no part of the job, and the job waits at the other end of its pipe or connection for what it makes.",
        "Run several of them beside each other, give it more cores, or keep what it makes in files that the job reads.",
    )


def open_once(*, call: str, share: float) -> Fix:
    return Fix(
        "Open the file of many samples once",
        f"{call} takes {percent(share)} of the time: opening such a file begins with reading where its samples lie. If "
        "several samples are read from it, each process needs to do that only once.",
        """\
def __getitem__(self, index):
    if self.opened is None:  # None in __init__: each worker opens its own, at its first sample
        self.opened = ...  # as now
    return self.read(self.opened, index)""",
    )


def table_once(*, part: float) -> Fix:
    return Fix(
        "Turn the table into tensors once",
        "Each row that is asked for becomes an object of its own, with an index and a type: a tenth of a millisecond "
        f"for what a tensor gives in some microseconds. {percent(part)} of the preparation is in the data frame.",
        """\
features = torch.from_numpy(frame[columns].to_numpy().astype('float32'))  # once, before training
sample = features[index]  # in training; what is computed of one row is computed of all before""",
    )


def fewer_passes(*, place: str, share: float) -> Fix:
    return Fix(
        "Prepare less often what all steps of a pass share",
        f"{place} runs beside the loop that trains, once for all of its rounds: {percent(share)} of the time. "
        "Loader workers make batches and would not take it over. Where it gives the same each time, once is enough; "
        "where the order or the choice of samples may be some passes old, every fourth pass will do.",
        """\
if number_of_pass % 4 == 0:  # counted from 0
    ...  # as now""",
    )


def prepare_once(*, kind: str, arrow: bool, drawn: float | None) -> Fix:
    why = (
        "Tokens are the same in each epoch: there is no need to make them again."
        if kind == "text"
        else "What is the same in each epoch can be kept: samples that are decoded, resized, filtered or tokenised."
    )
    if drawn is not None:
        why += f" That holds up to the first random draw: {percent(drawn)} of the preparation comes after it."
    code = _ONCE_IN_ARROW if arrow and kind == "text" else _ONCE.get(kind, _ONCE[""])
    return Fix("Do the part that never changes once", why, code)


def rows_in_order(*, by_number: bool) -> Fix:
    now = (
        "Shuffled or selected rows of this dataset are looked up one by one, through a list of their numbers"
        if by_number
        else "Rows of this dataset are looked up one by one"
    )
    return Fix(
        "Read the dataset's rows in order",
        f"{now}. In order, they come a batch at a time; what is shuffled then is the shards, and rows within a buffer.",
        "dataset = dataset.to_iterable_dataset(num_shards=64).shuffle(seed=0, buffer_size=10_000)\n"
        "dataset.set_epoch(epoch)  # before each epoch, or its order is the last one's"
        "\n# its loader takes no shuffle=True and no sampler; Hugging Face's Trainer needs max_steps then"
        + ("\n# if it must stay a map: dataset = dataset.flatten_indices(), once" if by_number else ""),
    )


def decode_on_gpu(*, kind: str) -> Fix:
    images = """\
encoded = [torchvision.io.read_file(path) for path in paths]  # in workers: bytes only
images = torchvision.io.decode_jpeg(encoded, device='cuda')  # in the trainer: nvJPEG, a batch in one call
# NVIDIA DALI reads, decodes and augments there: fn.decoders.image(encoded, device='mixed')"""
    video = """\
decoder = torchcodec.decoders.VideoDecoder(path, device='cuda')  # NVDEC
frames = decoder.get_frames_at(indices=[0, 8, 16]).data"""
    return Fix(
        "Decode on the GPU",
        "Its decoders are units of their own and take next to nothing from the model's arithmetic.",
        images if kind == "images" else video,
    )


def augment_on_gpu() -> Fix:
    return Fix(
        "Augment whole batches on the GPU",
        "The GPU waits while the CPU prepares: flips, crops and normalisation are cheap there. Each sample must draw "
        "for itself: a transform of torchvision draws once for the whole batch, those of Kornia once for each sample.",
        """\
batch = batch.to(device, non_blocking=True)  # as uint8
flipped = torch.rand(len(batch), 1, 1, 1, device=device) < 0.5
batch = torch.where(flipped, batch.flip(-1), batch).float().div_(255)
# crops: kornia.augmentation.RandomResizedCrop((224, 224))(batch)""",
    )


def sleeping() -> str:
    return "Sleeping while the input is prepared"


def sleeping_refuted() -> str:
    return "Leave the sleep out for some steps: if the pace stays the same, something else was waited for meanwhile."


def no_sleep(*, line: str | None, share: float) -> Fix:
    return Fix(
        f"Do not sleep at {line or 'this place'}",
        f"{percent(share)} of the time passes in sleeps of a set length (time.sleep), in which nothing is prepared. "
        "Where something is looked for again and again, wait for it instead, between processes with a "
        "multiprocessing.Queue or Event; where a limit on requests is kept, ask for more at once; after an error, try "
        "again in the background.",
        "item = arrived.get()  # a queue.Queue; or event.wait(): returns at once when it is there",
    )


def sampling() -> str:
    return "Drawing the indices of the next batch"


def sampling_refuted() -> str:
    return (
        "Pass a list of indices that was drawn beforehand as sampler: if the pace stays the same, drawing them is not "
        "what holds the job up."
    )


def draw_many(*, line: str | None, share: float) -> Fix:
    return Fix(
        f"Draw many batches' indices at once at {line or 'the sampler'}",
        f"The loader's sampler runs in the trainer's main thread and takes {percent(share)} of the time. More workers "
        "will not help: they only get what it has drawn. What it draws from (weights, lists that are filtered or "
        "sorted) seldom changes between two batches.",
        "candidates, weights = all_to_draw_from()  # once per 1000 batches\n"
        "drawn = random.choices(candidates, weights, k=1000 * batch_size)  # of tensors: torch.multinomial\n"
        "yield from drawn  # a batch_sampler yields lists of batch_size",
    )


def draw_ahead() -> Fix:
    return Fix(
        "Draw ahead in a thread",
        "A thread that fills a queue of indices works while the model computes, as far as it does so without the GIL.",
        "queue.Queue(maxsize=100)  # filled by threading.Thread(target=draw, daemon=True), emptied in __iter__",
    )


def keep_iterator(*, line: str | None, first: float, share: float) -> Fix:
    return Fix(
        f"Keep the loader's iterator{f' at {line}' if line else ''}",
        f"{percent(first)} of the time in loaders goes to the first batch of an iterator. Each iterator draws the "
        f"indices of a whole epoch when it begins, and that takes {percent(share)} of the time; where one ends after a "
        "few batches, nearly all of them are thrown away.",
        """\
def endless(loader):
    while True:
        yield from loader
batches = endless(loader)  # once, before the loop
batch = next(batches)  # in each step, in the place of next(iter(loader)) or of a loop that ends early""",
    )


def starting() -> str:
    return "Starting workers again and again"


def starting_refuted() -> str:
    return (
        "Set num_workers=0, or keep one pool, for a short run: if the pauses stay, starting workers is not their cause."
    )


def keep_workers(*, starts: float | None, life: float | None) -> Fix:
    why = "Each new worker is forked, imports and opens the dataset again before its first batch."
    if starts is not None:
        why = f"{starts:.0f} workers were started per minute. {why}"
    if life is not None:
        why += f" Each lived about {life:.2g} s."
    return Fix(
        "Keep the workers between epochs",
        f"{why} If persistent_workers is set already, the DataLoader itself is created again: create it once. Kept "
        "workers keep the dataset as it was when they started: what changes in it between epochs, draws for instance, "
        "has to move into __getitem__.",
        "loader = DataLoader(..., persistent_workers=True)  # once, before the loop over epochs",
    )


def longer_epochs() -> Fix:
    return Fix(
        "Make epochs longer",
        "Where an epoch is only a few batches, one pass over a longer sampler starts workers once for many epochs.",
        "longer = torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=100 * len(dataset))\n"
        "DataLoader(..., sampler=longer)  # in the place of shuffle=True or another sampler",
    )


def fork_server() -> Fix:
    return Fix(
        "Start workers by forkserver",
        "Workers are spawned here: each imports everything again. A fork server imports once.",
        "DataLoader(..., multiprocessing_context='forkserver')\n"
        "# before: multiprocessing.set_forkserver_preload(['torch', 'numpy'])",
    )


def hand_over() -> str:
    return "Batch hand-over from worker to trainer (IPC, before any copy to a GPU)"


def hand_over_refuted() -> str:
    return (
        "Let the dataset return one tensor of the same number of bytes: if the wait stays, the hand-over is not its "
        "cause."
    )


def whole_batches() -> Fix:
    return Fix(
        "Take batches out of the tensors directly",
        "The samples are rows of tensors in memory: taking them one by one, stacking them and sending the batch to the "
        "trainer does more than the batch needs.",
        "for rows in torch.randperm(len(inputs)).split(batch_size):  # no DataLoader\n"
        "    batch = inputs[rows], labels[rows]",
    )


def fewer_tensors(*, slack: float | None) -> Fix:
    spare = f" Workers have no work for {percent(slack)} of the time; more of them will not help." if slack else ""
    return Fix(
        "Return few large tensors per batch",
        "Every tensor or Python object of a batch is pickled, sent and rebuilt on its own, and the trainer pays for "
        f"rebuilding.{spare}",
        "def collate(samples):\n"
        "    inputs, labels = zip(*samples)\n"
        "    return torch.stack(inputs), torch.tensor(labels)\n"
        "DataLoader(..., collate_fn=collate)  # no lists of dicts, no per-sample objects",
    )


def share_by_name(*, part: float) -> Fix:
    return Fix(
        "Let workers share tensors by name",
        "By default an open file is sent for each tensor of a batch, over a connection of its own: "
        f"{percent(part)} of taking batches over. Sending its name costs less, but the files of a killed job stay in "
        "/dev/shm.",
        "torch.multiprocessing.set_sharing_strategy('file_system')  # before the loader is made",
    )


def pin_less() -> Fix:
    return Fix(
        "Give the pinning thread less to do",
        "One thread of the trainer copies every tensor of every batch into pinned memory, holding the GIL "
        "between them.",
        "Pack a batch into one tensor, or give its class a pin_memory() method that pins one buffer.",
    )


def out_of_order(*, slack: float) -> Fix:
    return Fix(
        "Do not wait for the slowest worker",
        f"Workers are idle for {percent(slack)} of the time while the trainer waits: batches are handed out in order.",
        "DataLoader(..., in_order=False, prefetch_factor=4)  # the order of batches then varies",
    )


def without_workers() -> Fix:
    return Fix(
        "Try without workers",
        "With num_workers=0 none are started and nothing is handed over; where preparing a batch costs less than that, "
        "it is faster.",
        "DataLoader(..., num_workers=0)",
    )


def queueing() -> str:
    return "Queueing for a lock of the job's own"


def queueing_refuted() -> str:
    return (
        "Run with one worker, or with one trainer where trainers queue: if the pace stays nearly the same, the lock "
        "lets only one work at a time; if it falls with their number, it does not."
    )


def own_resource(*, line: str | None) -> Fix:
    return Fix(
        "Give every worker its own resource instead of a shared lock",
        f"One worker holds the lock while the others queue, so several workers are as fast as one.{_taken_at(line)}",
        "def __getitem__(self, index):\n"
        "    if self._file is None:  # opened in the worker, at its first sample\n"
        "        self._file = open(self.path, 'rb')\n"
        "    return decode(os.pread(self._file.fileno(), size, offset))  # needs no lock: pread has no shared position",
    )


def lock_update(*, line: str | None) -> Fix:
    return Fix(
        "Take the lock for the update only",
        f"While one trainer holds the lock, the others stand still, so that all are as fast as one.{_taken_at(line)} "
        "Gradients are each process's own; only the weights are shared.",
        "loss.backward()  # this and the model's call before it, outside the lock\nwith lock:\n    optimizer.step()",
    )


def _taken_at(line: str | None) -> str:
    return f" It is taken at {line}." if line else ""


def lock_shared_part() -> Fix:
    return Fix(
        "Hold the lock only for the shared part",
        "Time under the lock is time in which all others stand still.",
        "with lock:\n    raw = shared.read(index)\nreturn decode(raw)  # outside the lock",
    )


def lock_copy(*, line: str | None) -> Fix:
    return Fix(
        "Hold the lock only while what it protects is copied",
        f"Time under the lock is time in which all others stand still.{_taken_at(line)}",
        "with lock:\n    copied = copy.deepcopy(shared)\nwork(copied)  # outside the lock",
    )
