"""Frames of Python stacks, and what those of torch, the standard library and well-known packages mean.

Each row says where its frames come from: the call of the library's that a user would know. Users add rows for
libraries of their own in a file (``perfdoctor.knowledge.user_frames``).

By where they lie, source files are a library's or the job's own:

============================  =======================================================================================
a file below or named         is
============================  =======================================================================================
``site-packages``             an installed package's (``pip``, ``conda``; site.getsitepackages())
``dist-packages``             one that Debian or Ubuntu installed (wiki.debian.org/Python)
``lib/python3.N``             the standard library's (sysconfig.get_path("stdlib")); ``lib64`` on Fedora and openSUSE
``torch``                     PyTorch's, also where it is built from source (``pip install -e``)
``<frozen …>``, ``<string>``  code that libraries make (``dataclass``, ``torch.fx``), but not what is typed at prompts
``perfdoctor/api.py`` …       perfdoctor's own hooks, where it is not installed but developed
============================  =======================================================================================
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_STANDARD = r"lib(?:64)?/python\d\.\d+"
_FOLDERS = rf"site-packages|dist-packages|{_STANDARD}"
# ``api.py`` was ``inside.py`` once: recordings of then have its frames.
_OWN_HOOKS = r"/perfdoctor/(?:api|inside|lightning|transformers)\.py$|/probes/(?:inside|treated)/\w+\.py$"

# Python that torch.compile writes, in whichever folder its cache is: by a hash, its first letters as the folder's name.
_COMPILED = r"/([a-z2-7]{2})/c\1[a-z2-7]{40,}\.py$"
_IN_LIBRARY = re.compile(rf"/(?:{_FOLDERS})/|/torch/|{_COMPILED}")
_MADE_OR_OURS = re.compile(rf"^<(?!stdin|console|input|(?:ipython|python)-input|command-)|{_OWN_HOOKS}")
_PACKAGE = re.compile(rf"/(?:{_STANDARD}/)?(?:{_FOLDERS})/([^/.]+)")
# torch.profiler takes the beginning of the module search path away, so a package's name begins the file's.
_PROFILED = frozenset((*sys.stdlib_module_names, "torch", "torchgen", "functorch", "triton", "numpy", "perfdoctor"))

# What every step of a job runs: code of its own, PyTorch, and what Python itself makes (as ``package_of`` names them).
OF_A_STEP = frozenset(("", "torch", "python"))


def is_library(file: str) -> bool:
    """Whether a frame's file is a library's, made by one, or perfdoctor's own; "" is nobody's."""
    return _IN_LIBRARY.search(file) is not None or _MADE_OR_OURS.search(file) is not None


def is_library_in_trace(file: str) -> bool:
    """The same of a file as torch.profiler names it: relative to the module search path where it can be."""
    first = file.partition("/")[0].removesuffix(".py")
    return _IN_LIBRARY.search(file) is not None or first in _PROFILED


def package_of(file: str) -> str:
    """The package that a source file belongs to: ``torch``, ``PIL``, ``json``; "" for the job's own."""
    found = _PACKAGE.search(file)
    if found:
        return found.group(1)
    return "torch" if _IN_LIBRARY.search(file) else "python" if file.startswith("<") else ""


# What a frame may say that a thread is doing in a training step.
PHASES = (
    "data",
    "transfer",
    "forward",
    "loss",
    "backward",
    "gradient sync",
    "optimizer",
    "saving",
    "logging",
    "other",
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One call on a Python stack."""

    file: str
    function: str
    line: int

    @property
    def simple_name(self) -> str:
        """The function's name without its class (Python 3.11 and newer report both)."""
        return self.function.rpartition(".")[2]


class FrameMeaning(NamedTuple):
    """What frames of a library mean.

    Attributes:
        file: matched against the end of the frame's path.
        functions: names without classes or with them; empty for any.
        phase: one of ``PHASES``; "" where the row says nothing of it.
        detail: a finer location inside it, see ``perfdoctor.timeline.code_location.CodeLocation``.
    """

    file: re.Pattern[str]
    functions: frozenset[str]
    phase: str
    detail: str

    def matches(self, frame: Frame) -> bool:
        """Whether the row is about this frame."""
        named = not self.functions or frame.simple_name in self.functions or frame.function in self.functions
        return named and self.file.search(frame.file) is not None


def meaning(file: str, functions: str, phase: str, detail: str = "") -> FrameMeaning:
    """A row of a table.

    Args:
        file: the end of a path, from the beginning of a name of a folder or file on, as a regular expression.
        functions: separated by spaces; "" for any. Classes are known from Python 3.11 on.
        phase: as in ``FrameMeaning``.
        detail: as in ``FrameMeaning``.

    Raises:
        re.error: ``file`` is no regular expression.
    """
    return FrameMeaning(re.compile(rf"(?:^|/)(?:{file})$"), frozenset(functions.split()), phase, detail)


_LIGHTNING = r"(?:lightning/(?:fabric|pytorch)|lightning_fabric|pytorch_lightning)"
# Installed packages only: folders of these names are common in jobs.
INSTALLED = r"(?:site|dist)-packages"

SAVING = (
    meaning(r"torch/serialization\.py", "save _save _legacy_save", "saving"),  # torch.save
    # torch.distributed.checkpoint (DCP)
    meaning(r"torch/distributed/checkpoint/.*\.py", "", "saving"),
    # ZeroRedundancyOptimizer.consolidate_state_dict, FSDP.optim_state_dict and what FSDP does in a model's state_dict()
    meaning(r"torch/distributed/optim/zero_redundancy_optimizer\.py", "consolidate_state_dict", "saving"),
    meaning(r"torch/distributed/fsdp/_optim_utils\.py", "_optim_state_dict", "saving"),
    meaning(r"torch/distributed/fsdp/_state_dict_utils\.py", "_pre_state_dict_hook _post_state_dict_hook", "saving"),
    # safetensors.torch
    meaning(r"safetensors/torch\.py", "save_file save save_model", "saving"),
    # Lightning's ModelCheckpoint and Trainer.save_checkpoint
    meaning(r"(?:lightning/fabric|lightning_fabric)/utilities/cloud_io\.py", "_atomic_save", "saving"),
)
LOGGING = (
    # torch.utils.tensorboard.SummaryWriter
    meaning(r"torch/utils/tensorboard/.*\.py", "", "logging"),
    # Lightning's CSVLogger, TensorBoardLogger …
    meaning(rf"{_LIGHTNING}/loggers/.*\.py", "", "logging"),
    # experiment trackers' own packages: wandb.log, mlflow.log_metric …
    meaning(r"(?:tensorboard|tensorboardX|wandb|mlflow|comet_ml|neptune|aim|clearml)/.*\.py", "", "logging"),
    # the standard library's logging
    meaning(r"logging/(?:__init__|handlers)\.py", "", "logging"),
    # progress bars that are drawn anew: tqdm's and rich's, and Lightning's around them
    meaning(rf"{INSTALLED}/tqdm/(?:std|notebook|rich|gui)\.py", "refresh display moveto", "logging"),
    meaning(rf"{INSTALLED}/rich/(?:live|progress|console)\.py", "refresh render_lines print", "logging"),
    meaning(rf"{_LIGHTNING}/callbacks/progress/.*\.py", "", "logging"),
)
# What takes a batch to the device in front of the model's call, in a training step of a library's.
MOVING = (
    # transformers' Trainer
    meaning(rf"{INSTALLED}/transformers/trainer\.py", "_prepare_inputs _prepare_input", "transfer"),
    # transformers' BatchEncoding and BatchFeature
    meaning(rf"{INSTALLED}/transformers/(?:tokenization|feature_extraction)_utils(?:_base)?\.py", "to", "transfer"),
    # accelerate's loaders
    meaning(rf"{INSTALLED}/accelerate/utils/operations\.py", "send_to_device", "transfer"),
    # Lightning's hooks for batches, and what those call
    meaning(rf"{_LIGHTNING}/strategies/\w+\.py", "batch_to_device", "transfer"),
    meaning(
        r"(?:lightning/fabric|lightning_fabric)/utilities/apply_func\.py", "move_data_to_device batch_to", "transfer"
    ),
)
WORKER_LOOP = meaning(r"torch/utils/data/_utils/worker\.py", "_worker_loop", "data", "worker")
DATA = (
    WORKER_LOOP,  # of torch.utils.data.DataLoader, as the thread that pins, starting and stopping workers, fetching
    meaning(r"torch/utils/data/_utils/pin_memory\.py", "", "data", "hand over"),
    meaning(r"torch/utils/data/dataloader\.py", "_shutdown_workers __del__", "data", "loader start"),
    meaning(r"torch/utils/data/dataloader\.py", "_get_iterator __iter__ __init__ _reset", "data", "loader start"),
    meaning(r"torch/utils/data/dataloader\.py", "", "data", "loader"),
    # torch's datasets, samplers and collate functions; torchdata's nodes and pipes
    meaning(r"torch/utils/data/.*\.py", "", "data", "fetch"),
    meaning(r"torchdata/.*\.py", "", "data", "fetch"),
    *MOVING,
    # packages that read and augment: torchvision, albumentations, WebDataset, LitData, Hugging Face datasets
    meaning(
        rf"{INSTALLED}/(?:"
        r"torchvision/(?:transforms|datasets|io)|albumentations|kornia/augmentation|torch_audiomentations|webdataset|litdata|datasets|"
        r"transformers/data)/.*\.py",
        "",
        "data",
        "fetch",
    ),
    # tokenizers and processors of Hugging Face transformers
    meaning(
        rf"{INSTALLED}/transformers/(?:tokenization|image_processing|video_processing|feature_extraction)_.*\.py",
        "",
        "data",
        "fetch",
    ),
)
COMPILING = (
    # torch.compile, which calls the model's modules to see what they do
    meaning(
        r"torch/_(?:dynamo|inductor|functorch)/.*\.py",
        "compile _compile compile_inner compile_fx_inner transform codegen",
        "other",
        "compile",
    ),
)
# torch.profiler, when it begins to record, ends, and sorts what it has recorded; not its marks around operators
_RECORDS = "start_trace stop_trace export_chrome_trace _parse_kineto_results _ensure_function_events"
PROFILING = (
    meaning(r"torch/(?:profiler|autograd)/profiler\.py", _RECORDS, "other", "profile"),
    meaning(r"torch/autograd/profiler_util\.py", "", "other", "profile"),
)
SAVING_ARRAYS = (
    # numpy.save, numpy.savez …
    meaning(r"numpy/lib/_?npyio(?:_impl)?\.py", "save savez savez_compressed _savez savetxt", "saving"),
    # joblib.dump, safetensors.numpy.save_file
    meaning(r"joblib/numpy_pickle\.py|safetensors/numpy\.py", "dump save_file", "saving"),
    # compressed files of the standard library's
    meaning(r"lib(?:64)?/python3\.\d+/(?:gzip|bz2|lzma|zipfile(?:/__init__)?)\.py", "write writestr", "saving"),
)
# Metrics that are modules or an engine's handlers: a call of one is none of the model. As a function one may be a loss.
METRICS = (
    # torchmetrics.Metric and MetricCollection, ignite.metrics, torcheval.metrics
    meaning(rf"{INSTALLED}/torchmetrics/(?:metric|collections)\.py", "", "other", "afterwards"),
    meaning(rf"{INSTALLED}/(?:ignite|torcheval)/metrics/(?!functional).*\.py", "", "other", "afterwards"),
)
DATA_PARALLEL = (
    # torch.nn.DataParallel
    meaning(
        r"torch/nn/parallel/(?:data_parallel|scatter_gather|replicate|parallel_apply|_functions)\.py",
        "",
        "forward",
        "data parallel",
    ),
)
# Frames that decide wherever they stand: what is called below them serves them (a torchvision transform is an
# nn.Module, but inside a dataset it is input work). Of two groups the first decides: below a dataset, numpy.save keeps
# prepared samples, which the loader's frames have claimed already.
DOMINANT: tuple[tuple[FrameMeaning, ...], ...] = (
    (*SAVING, *LOGGING),
    DATA,
    COMPILING,
    PROFILING,
    SAVING_ARRAYS,
    METRICS,
    DATA_PARALLEL,
)

# A call of an nn.Module; its other methods go over its parameters.
_MODULE_CALL = meaning(r"torch/nn/modules/module\.py", "_call_impl _wrapped_call_impl", "forward")
# Frames of which the innermost decides.
INNERMOST: tuple[FrameMeaning, ...] = (
    # torch.nn.CrossEntropyLoss …, torch.nn.functional.cross_entropy …
    meaning(r"torch/nn/modules/loss\.py", "", "loss"),
    meaning(
        r"torch/nn/functional\.py",
        "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div ctc_loss "
        "binary_cross_entropy_with_logits",
        "loss",
    ),
    # Tensor.backward, torch.autograd.backward and .grad, and the engine below them
    meaning(r"torch/(?:_tensor|autograd/(?:__init__|graph))\.py", "backward grad _engine_run_backward", "backward"),
    # torch.distributed: all_reduce and its like, rendezvous, communication hooks
    meaning(
        r"torch/distributed/(?:distributed_c10d|c10d_logger|rendezvous|algorithms/.*|nn/.*|_functional_collectives)\.py",
        "",
        "gradient sync",
        "collective",
    ),
    # torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler
    meaning(r"torch/nn/utils/clip_grad\.py", "", "optimizer", "clip"),
    meaning(r"torch/(?:cuda/)?amp/grad_scaler\.py", "step update unscale_ _unscale_grads_", "optimizer", "clip"),
    # torch.optim.lr_scheduler: its step() is cheap and comes once in a while
    meaning(r"torch/optim/lr_scheduler\.py", "", "other"),
    # Lightning calls the script's training step from within the optimizer's.
    meaning(r"(?:lightning/pytorch|pytorch_lightning)/loops/optimization/automatic\.py", "closure", "other"),
    # torch.optim's optimizers
    meaning(r"torch/optim/.*\.py", "", "optimizer"),
    # torch.cuda.empty_cache, torch.accelerator.memory.empty_cache: the cache goes back to the driver
    meaning(r"torch/(?:cuda|xpu|accelerator)/memory\.py", "empty_cache", "other", "allocator"),
    _MODULE_CALL,
    # multiprocessing.Queue.get, Connection.recv: what another process sends is taken over, and unpickled by C code
    meaning(r"multiprocessing/(?:queues|connection)\.py", "get recv recv_bytes _recv _recv_bytes", "data", "hand over"),
    # multiprocessing.Pool.map, AsyncResult.get, ProcessPoolExecutor.map: waits for what a pool of processes makes
    meaning(r"multiprocessing/pool\.py", "map starmap apply get next wait", "data", "hand over"),
    meaning(r"concurrent/futures/process\.py", "_chain_from_iterable_of_lists", "data", "hand over"),
)

# Functions of libraries that train in place of a loop of the job's own: below the line that calls the model they call
# the job's callbacks (Lightning's _TrainingEpochLoop.advance, transformers' Trainer._inner_training_loop).
_TRAINING_LOOP = re.compile(
    rf"(?:lightning/pytorch|pytorch_lightning)/loops/training_epoch_loop\.py$|{INSTALLED}/transformers/trainer\.py$"
)
# Asking another process: multiprocessing's pipes, queues, managers and pools, and concurrent.futures' pools.
ASKS = (
    meaning(r"multiprocessing/connection\.py", "send send_bytes _send _send_bytes", ""),
    meaning(r"multiprocessing/queues\.py", "put", ""),
    meaning(r"multiprocessing/managers\.py", "_callmethod", ""),
    meaning(r"multiprocessing/pool\.py", "map starmap apply", ""),
    meaning(r"concurrent/futures/process\.py", "map submit", ""),
)

# Frames that do nothing but wait when they are innermost.
ONLY_WAITING = (
    # threading.Condition.wait, Thread.join, Event.wait, Lock
    meaning(r"threading\.py", "wait _wait_for_tstate_lock acquire join _wait", ""),
    # multiprocessing.Lock, Semaphore … as they are entered, Condition and Event
    meaning(r"multiprocessing/synchronize\.py", "__enter__ wait wait_for", ""),
    # multiprocessing.connection: polls of pipes and processes
    meaning(r"multiprocessing/connection\.py", "_poll wait poll accept", ""),
    meaning(r"multiprocessing/(?:popen_fork|popen_spawn_posix|popen_forkserver)\.py", "poll wait", ""),
    # selectors, socket.accept, subprocess.Popen.wait
    meaning(r"selectors\.py", "select", ""),
    meaning(r"socket\.py", "accept", ""),
    meaning(r"subprocess\.py", "wait _wait _try_wait", ""),
)
# Frames that may wait; those that are not among the former also copy or convert what they waited for.
WAITING = (
    *ONLY_WAITING,
    # queue.Queue, multiprocessing's connections, queues and locks
    meaning(r"(?:queue|multiprocessing/queues)\.py", "get put", ""),
    meaning(r"multiprocessing/connection\.py", "_recv _recv_bytes _send _send_bytes recv_bytes recv", ""),
    meaning(r"multiprocessing/synchronize\.py", "", ""),
    # sockets, TLS, asyncio's streams
    meaning(r"(?:socket|ssl|asyncio/.*)\.py", "recv_into readinto recv read connect send sendall", ""),
    # subprocess.Popen.communicate, concurrent.futures.Future.result
    meaning(r"subprocess\.py", "communicate _communicate", ""),
    meaning(r"concurrent/futures/.*\.py", "result wait", ""),
)
RUNS_PROGRAMS = meaning(r"subprocess\.py", "", "")
LOCKS = re.compile(r"(?:^|/)multiprocessing/synchronize\.py$")  # multiprocessing.Lock, Semaphore …
# Pickling a batch, and sending it to another process.
HANDOVER = re.compile(
    r"(?:^|/)(?:multiprocessing/(?:reduction|reductions|queues|connection|resource_sharer)|torch/multiprocessing/.*)\.py$"
)
_LOADER = re.compile(r"(^|/)torch/utils/data/dataloader\.py$")
_DATASET = re.compile(r"/torch/utils/data/dataset\.py$")
# What asks the process that made a tensor for its shared memory, and what waits for something to read.
_ASKS_FOR_MEMORY = meaning(r"torch/multiprocessing/reductions\.py", "rebuild_storage_fd", "")
_AWAITS_MESSAGE = meaning(r"multiprocessing/connection\.py", "_poll", "")
_DISTRIBUTED = re.compile(r"/torch/distributed/.*\.py$")
_GENERATION = re.compile(rf"{INSTALLED}/(?:transformers/generation|vllm|sglang)/")  # and engines in its place


def is_own(frame: Frame) -> bool:
    """Whether a frame is the user's own: no library's, and not perfdoctor's hooks."""
    return bool(frame.file) and not is_library(frame.file)


def runs_training_loop(frame: Frame) -> bool:
    """Whether a frame is of a library's training loop."""
    return _TRAINING_LOOP.search(frame.file) is not None


def in_loader(frame: Frame) -> bool:
    """Whether a frame is a DataLoader's."""
    return _LOADER.search(frame.file) is not None


def generates_text(stack: Sequence[Frame]) -> bool:
    """Whether a language model generates text: of what it says in a rollout it learns afterwards."""
    return any(_GENERATION.search(frame.file) is not None for frame in stack)


def is_import(stack: Sequence[Frame]) -> bool:
    """Whether a module is being imported; what its body calls is no training."""
    return any(frame.file.startswith("<frozen importlib") for frame in stack)


def calls_model(stack: Sequence[Frame]) -> bool:
    """Whether a module is called: others of its methods, which go over its parameters, are no forward pass."""
    return any(map(_MODULE_CALL.matches, stack))


def calls_backward(stack: Sequence[Frame]) -> bool:
    """Whether a backward pass is under way; checkpointed blocks call their modules once more in it."""
    return any(row.phase == "backward" and row.matches(frame) for frame in stack for row in INNERMOST)


def sends_all_to_all(stack: Sequence[Frame]) -> bool:
    """Whether each rank sends something else to each other one: torch.distributed's all_to_all and its like."""
    return any("all_to_all" in frame.simple_name and _DISTRIBUTED.search(frame.file) for frame in stack)


def asks_for_shared_memory(stack: Sequence[Frame]) -> bool:
    """Whether the process that made a tensor is asked for its shared memory, as torch does by default."""
    return any(map(_ASKS_FOR_MEMORY.matches, stack))


def awaits_message(stack: Sequence[Frame]) -> bool:
    """Whether a connection of multiprocessing has nothing to read yet."""
    return any(map(_AWAITS_MESSAGE.matches, stack))


def reads_tensors(stack: Sequence[Frame]) -> bool:
    """Whether a sample is being taken out of tensors by torch's own dataset: other datasets of torch call further."""
    in_dataset = bool(stack) and _DATASET.search(stack[-1].file) is not None
    return in_dataset and any(frame.simple_name in ("__getitem__", "__getitems__") for frame in stack[-2:])
