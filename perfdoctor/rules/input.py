"""The input pipeline: preparing batches, starting workers, handing batches over, and locks."""

from dataclasses import replace

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.finding import REPORTED, finding, freed
from perfdoctor.rules.lookups import hot_line, setting, uses_gpu
from perfdoctor.rules.wording import at, percent, takes
from perfdoctor.rules.workers import no_more_workers, plan_workers, worker_fixes

# Workers idle for more than this while the trainer waits have capacity to spare. Measured: 0.79 idle where
# the trainer was slow, next to nothing where the workers were.
_SLACK = 0.20


# Of the preparation, the part below which a decoder is not worth a word.
_DECODES = 0.05
# Of the preparation, the part in the sampler from which the dataset's own work is not worth a word.
_MOSTLY_SAMPLING = 0.5
# Of the preparation, the part in torch's own loader from which the dataset itself has nothing to make cheaper.
_TORCHS = 0.5
_DECODE = ", decode to the size that is needed (image.draft('RGB', size) before load)"
_WITHOUT_LOADER = "what prepares the input"
_PREPARE_ONCE = Fix(
    "Do the part that never changes once",
    "What is computed anew in each epoch with the same result can be kept: decoded, resized or "
    "tokenised samples.",
    "Write the prepared samples once (numpy.save, torch.save per shard) and read them with "
    "numpy.load(path, mmap_mode='r').",
)


def input_preprocessing(case: Case) -> Finding | None:
    """Decoding, augmenting, tokenising, collating: the input pipeline's own computation."""
    cause = "cpu.input_preprocessing"
    if case.share(cause) < REPORTED:
        return None
    if _mostly_sampling(case, cause):
        return _slow_sampler(case, cause)
    plan = plan_workers(case, cause)
    fixes = worker_fixes(case, cause, plan)
    line = at(case, cause, _WITHOUT_LOADER if case.settings.get("loader") == "no" else "the dataset's transforms")
    decode = _DECODE if case.below.get(cause, {}).get("PIL", 0.0) >= _DECODES else ""
    cheaper = Fix(
        f"Make {line} cheaper",
        f"Preparing the input holds the trainer up for {percent(case.share(cause))} of the "
        f"time.{no_more_workers(plan, case.share(cause))}",
        f"Work on whole arrays instead of elements{decode}, and leave out what the model does not use.",
        freed(case.share(cause)),
    )
    if _only_rows(case, cause):
        fixes.append(replace(_WHOLE_BATCHES, predicted_speedup=freed(case.share(cause))))
    else:
        fixes += [cheaper, _PREPARE_ONCE]
    if uses_gpu(case):
        fixes.append(
            Fix(
                "Augment whole batches on the GPU",
                "The GPU waits while the CPU prepares: random crops, flips and normalisation are cheap "
                "there.",
                "batch = transforms(batch.to(device, non_blocking=True))  # torchvision.transforms.v2 on a "
                "uint8 batch",
            )
        )
    return finding(
        case,
        cause,
        takes(case, cause, "Preparing the input on the CPU"),
        (
            "workers_busy", "worker_busy", "job_cores", "worker_cores", "neighbour_cores", "page_cache",
            "traced_loading", "traced_busy", "exposed_data",
        ),
        fixes,
        "Repeat one batch that is kept in memory for some steps: if the pace stays the same, the input is "
        "not what holds the job up.",
    )


def _mostly_sampling(case: Case, cause: str) -> bool:
    """Whether most of it is the sampler's: indices are drawn in the trainer, however many workers there are."""
    drawing = [trainer.number("own_sampling") or 0.0 for trainer in case.trainers]
    return bool(drawing) and sum(drawing) / len(drawing) >= _MOSTLY_SAMPLING * case.share(cause)


def _slow_sampler(case: Case, cause: str) -> Finding:
    share = case.share(cause)
    return finding(
        case,
        cause,
        takes(case, cause, "Drawing the indices of the next batch"),
        ("worker_busy", "workers_busy"),
        [
            Fix(
                f"Draw many batches' indices at once at {at(case, cause, 'the sampler')}",
                f"The loader's sampler runs in the trainer's main thread and takes {percent(share)} of the time. More "
                "workers will not help: they only get what it has drawn.",
                "indices = torch.multinomial(weights, 1000 * batch_size, replacement=True)  # once per 1000 batches\n"
                "yield from indices.split(batch_size)",
                freed(share),
            ),
            Fix(
                "Draw ahead in a thread",
                "A thread that fills a queue of indices works while the model computes, as far as it does so outside "
                "of the interpreter.",
                "queue.Queue(maxsize=100)  # filled by threading.Thread(target=draw, daemon=True), emptied in __iter__",
            ),
        ],
        "Pass a list of indices that was drawn beforehand as sampler: if the pace stays the same, drawing them is not "
        "what holds the job up.",
    )


def _only_rows(case: Case, cause: str) -> bool:
    """Whether the preparation is torch's own: rows of tensors in memory, taken one by one and stacked."""
    return case.settings.get("dataset") == "tensors" and case.below.get(cause, {}).get("torch", 0.0) >= _TORCHS


_LONGER_EPOCHS = Fix(
    "Make epochs longer",
    "Where an epoch is only a few batches, one pass over a longer sampler starts workers once for "
    "many epochs.",
    "DataLoader(..., sampler=RandomSampler(dataset, replacement=True, num_samples=100 * len(dataset)))",
)


def worker_startup(case: Case) -> Finding | None:
    """Workers started anew, each epoch for instance."""
    cause = "cpu.worker_startup"
    if case.share(cause) < REPORTED:
        return None
    starts, life = case.number("worker_starts"), case.number("worker_life")
    why = "Each new worker is forked, imports and opens the dataset again before its first batch."
    if starts is not None:
        why = f"{starts:.0f} workers were started per minute. {why}"
    if life is not None:
        why += f" One lived {life:.2g} s."
    fixes = [
        Fix(
            "Keep the workers between epochs",
            f"{why} If persistent_workers is set already, the DataLoader itself is made anew: make it once.",
            "loader = DataLoader(..., persistent_workers=True)  # once, before the loop over epochs",
        ),
        _LONGER_EPOCHS,
    ]
    if case.settings.get("start_method") == "spawn":
        fixes.append(
            Fix(
                "Start workers by forkserver",
                "Workers are spawned here: each imports everything again. A fork server imports once.",
                "DataLoader(..., multiprocessing_context='forkserver')\n"
                "# before: multiprocessing.set_forkserver_preload(['torch', 'numpy'])",
            )
        )
    return finding(
        case,
        cause,
        takes(case, cause, "Starting loader workers anew"),
        ("worker_starts", "worker_life", "exposed_data"),
        fixes,
        "Set num_workers=0 for a short run: if the pauses between epochs stay, starting workers is not "
        "their cause.",
    )


_PIN_LESS = Fix(
    "Give the pinning thread less to do",
    "One thread of the trainer copies every tensor of every batch into pinned memory, holding "
    "the interpreter lock between them.",
    "Pack a batch into one tensor, or give its class a pin_memory() method that pins one buffer.",
)


_WITHOUT_WORKERS = Fix(
    "Try without workers",
    "With num_workers=0 nothing is handed over; where preparing a batch costs less than handing "
    "it over, that is faster.",
    "DataLoader(..., num_workers=0)",
)


_WHOLE_BATCHES = Fix(
    "Take batches out of the tensors directly",
    "The samples are rows of tensors in memory: taking them one by one, stacking them and sending the batch to the "
    "trainer does more than the batch needs.",
    "for rows in torch.randperm(len(inputs)).split(batch_size):  # no DataLoader\n"
    "    batch = inputs[rows], labels[rows]",
)


def _fewer_tensors(slack: float | None) -> Fix:
    spare = (
        f" Workers have no work for {percent(slack)} of the time; more of them will not help."
        if slack
        else ""
    )
    return Fix(
        "Return few large tensors per batch",
        "Every tensor or Python object of a batch is pickled, sent and rebuilt on its own, and the trainer "
        f"pays for rebuilding.{spare}",
        "def collate(samples):\n"
        "    inputs, labels = zip(*samples)\n"
        "    return torch.stack(inputs), torch.tensor(labels)\n"
        "DataLoader(..., collate_fn=collate)  # no lists of dicts, no per-sample objects",
    )


def data_transfer(case: Case) -> Finding | None:
    """Handing batches from worker to trainer: pickling, shared memory, pinning, ordering."""
    cause = "cpu.data_transfer"
    if case.share(cause) < REPORTED:
        return None
    idle = None if (busy := case.number("worker_busy")) is None else 1 - busy
    slack = idle if idle is not None and idle >= _SLACK else None
    fixes = [_WHOLE_BATCHES if case.settings.get("dataset") == "tensors" else _fewer_tensors(slack)]
    if case.settings.get("pin_thread") == "yes":
        fixes.append(_PIN_LESS)
    if slack:
        fixes.append(
            Fix(
                "Do not wait for the slowest worker",
                f"Workers are idle for {percent(slack)} of the time while the trainer waits: batches are "
                "handed out in order.",
                "DataLoader(..., in_order=False, prefetch_factor=4)  # the order of batches then varies",
            )
        )
    if (setting(case, "workers") or 0) > 0 and not uses_gpu(case):
        fixes.append(_WITHOUT_WORKERS)
    return finding(
        case,
        cause,
        takes(case, cause, "Handing batches from the workers to the trainer"),
        ("worker_busy", "workers_busy", "trainer_switches", "exposed_data"),
        fixes,
        "Let the dataset return one tensor of the same number of bytes: if the wait stays, the hand-over is "
        "not its cause.",
    )


def lock_contention(case: Case) -> Finding | None:
    """Workers or threads that queue for a lock of the job's own."""
    cause = "cpu.lock_contention"
    if case.share(cause) < REPORTED:
        return None
    place = f" It is taken at {hot_line(case, cause)}." if hot_line(case, cause) else ""
    fixes = [
        Fix(
            "Give every worker its own resource instead of a shared lock",
            "One worker holds the lock while the others queue, so several workers are as fast as "
            f"one.{place}",
            "def __getitem__(self, index):\n"
            "    if self._file is None:  # opened in the worker, at its first sample\n"
            "        self._file = open(self.path, 'rb')\n"
            "    return decode(os.pread(self._file.fileno(), size, offset))  # needs no lock: pread has no "
            "shared position",
        ),
        Fix(
            "Hold the lock only for the shared part",
            "Time under the lock is time in which all others stand still.",
            "with lock:\n    raw = shared.read(index)\nreturn decode(raw)  # outside the lock",
        ),
    ]
    return finding(
        case,
        cause,
        takes(case, cause, "Queueing for a lock of the job's own"),
        ("worker_busy", "worker_cores"),
        fixes,
        "Run with num_workers=1: if the pace stays nearly the same, the lock serialises the workers; if it "
        "falls with the number of workers, it does not.",
    )


INPUT_RULES = (input_preprocessing, worker_startup, data_transfer, lock_contention)
