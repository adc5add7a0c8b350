"""Which part of a training step a Python stack is in, told from frames of torch and the standard library alone."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
TRAINING_PHASES = frozenset(("forward", "loss", "backward", "gradient sync", "optimizer"))

# What may lie between marks: calls of the model, of autograd, of optimizers and of loaders are always marked.
UNMARKED_PHASES = frozenset(("other", "loss", "transfer", "gradient sync", "saving", "logging"))


@dataclass(frozen=True, slots=True)
class Frame:
    """One call on a Python stack."""

    file: str
    function: str
    line: int

    @property
    def simple_name(self) -> str:
        """The function's name without its class (Python 3.11 and newer tell both)."""
        return self.function.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Place:
    """What a stack tells.

    Attributes:
        phase: one of ``PHASES``.
        detail: a finer place inside it: ``fetch``, ``worker idle``, ``worker start``, ``hand over``, ``loader start``,
            ``loader wait``, ``sampling`` (the next indices are drawn, in the trainer), ``engine`` (autograd's, in C++
            and without the interpreter lock), ``collective``, ``data parallel``, ``compile``, ``PREPARES``,
            ``AFTERWARDS`` (both are set by ``perfdoctor.own_loop``) or "".
        waits: the innermost frame may block (a queue, a lock, a pipe, a socket).
        only_waits: it does nothing else, so a thread that runs is not there.
        line: the innermost line of the job's own code, ``file:line function``; "" if there is none.
    """

    phase: str
    detail: str = ""
    waits: bool = False
    only_waits: bool = False
    line: str = ""


UNKNOWN = Place("other")
# Details of code in the loop itself that prepares a step's input, and that uses the model's output.
PREPARES = "prepares"
AFTERWARDS = "afterwards"

# Matched from the innermost frame outwards; the first group in which any frame matches wins. (group, file, functions,
# phase, detail); no functions means any.
_Rule = tuple[re.Pattern[str], frozenset[str], str, str]


def _rule(file: str, functions: str, phase: str, detail: str = "") -> _Rule:
    return re.compile(rf"(?:^|/){file}$"), frozenset(functions.split()), phase, detail


# Frames that decide wherever they stand: what is called below them serves them (a torchvision transform is an
# nn.Module, but inside a dataset it is input work).
_DOMINANT: tuple[tuple[_Rule, ...], ...] = (
    (
        _rule(r"torch/serialization\.py", "save _save _legacy_save", "saving"),
        _rule(r"torch/distributed/checkpoint/.*\.py", "", "saving"),
        _rule(r"safetensors/torch\.py", "save_file save save_model", "saving"),
        _rule(r"(?:lightning/fabric|lightning_fabric)/utilities/cloud_io\.py", "_atomic_save", "saving"),
        _rule(r"torch/utils/tensorboard/.*\.py", "", "logging"),
        _rule(
            r"(?:lightning/(?:fabric|pytorch)|lightning_fabric|pytorch_lightning)/loggers/.*\.py", "", "logging"
        ),
        _rule(
            r"(?:tensorboard|tensorboardX|wandb|mlflow|comet_ml|neptune|aim|clearml)/.*\.py", "", "logging"
        ),
        _rule(r"logging/(?:__init__|handlers)\.py", "", "logging"),
    ),
    (
        _rule(r"torch/utils/data/_utils/worker\.py", "_worker_loop", "data", "worker"),
        _rule(r"torch/utils/data/_utils/pin_memory\.py", "", "data", "hand over"),
        _rule(r"torch/utils/data/dataloader\.py", "_shutdown_workers __del__", "data", "loader start"),
        _rule(
            r"torch/utils/data/dataloader\.py",
            "_get_iterator __iter__ __init__ _reset",
            "data",
            "loader start",
        ),
        _rule(r"torch/utils/data/dataloader\.py", "", "data", "loader"),
        _rule(r"torch/utils/data/.*\.py", "", "data", "fetch"),
        _rule(r"torchdata/.*\.py", "", "data", "fetch"),
        # Installed packages only: folders of these names are common in jobs.
        _rule(
            r"(?:site|dist)-packages/(?:"
            r"torchvision/(?:transforms|datasets|io)|albumentations|kornia/augmentation|webdataset|litdata|datasets|"
            r"transformers/data)/.*\.py",
            "",
            "data",
            "fetch",
        ),
        _rule(
            r"(?:site|dist)-packages/transformers/(?:tokenization|image_processing|video_processing|feature_extraction)_.*\.py",
            "",
            "data",
            "fetch",
        ),
    ),
    (
        # Below a dataset, the same functions keep prepared samples, which the loader's frames have claimed already.
        _rule(r"numpy/lib/_?npyio(?:_impl)?\.py", "save savez savez_compressed _savez savetxt", "saving"),
        _rule(r"joblib/numpy_pickle\.py", "dump", "saving"),
        _rule(r"safetensors/numpy\.py", "save_file", "saving"),
    ),
    (
        _rule(
            r"torch/nn/parallel/(?:data_parallel|scatter_gather|replicate|parallel_apply)\.py",
            "",
            "forward",
            "data parallel",
        ),
        _rule(r"torch/nn/parallel/_functions\.py", "", "forward", "data parallel"),
    ),
)
# Frames of which the innermost decides.
_INNERMOST: tuple[_Rule, ...] = (
    _rule(
        r"torch/_(?:dynamo|inductor|functorch)/.*\.py",
        "compile _compile compile_inner transform codegen",
        "other",
        "compile",
    ),
    _rule(r"torch/nn/modules/loss\.py", "", "loss"),
    _rule(
        r"torch/nn/functional\.py",
        "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div ctc_loss "
        "binary_cross_entropy_with_logits",
        "loss",
    ),
    _rule(r"torch/autograd/__init__\.py", "backward grad _engine_run_backward", "backward"),
    _rule(r"torch/autograd/graph\.py", "_engine_run_backward", "backward"),
    _rule(r"torch/_tensor\.py", "backward", "backward"),
    _rule(
        r"torch/distributed/(?:distributed_c10d|c10d_logger|rendezvous|algorithms/.*|nn/.*|_functional_collectives)\.py",
        "",
        "gradient sync",
        "collective",
    ),
    _rule(r"torch/nn/utils/clip_grad\.py", "", "optimizer"),
    _rule(r"torch/amp/grad_scaler\.py", "step update unscale_ _unscale_grads_", "optimizer"),
    _rule(r"torch/optim/lr_scheduler\.py", "", "other"),
    # Lightning calls the script's training step from within the optimizer's.
    _rule(r"(?:lightning/pytorch|pytorch_lightning)/loops/optimization/automatic\.py", "closure", "other"),
    _rule(r"torch/optim/.*\.py", "", "optimizer"),
    _rule(r"torch/nn/modules/module\.py", "", "forward"),
)  # fmt: skip

_ONLY_WAITING = (
    _rule(r"threading\.py", "wait _wait_for_tstate_lock acquire join _wait", ""),
    _rule(r"multiprocessing/connection\.py", "_poll wait poll accept", ""),
    _rule(r"multiprocessing/(?:popen_fork|popen_spawn_posix|popen_forkserver)\.py", "poll wait", ""),
    _rule(r"selectors\.py", "select", ""),
    _rule(r"socket\.py", "accept", ""),
    _rule(r"subprocess\.py", "wait _wait _try_wait", ""),
)
# These also copy or convert what they waited for.
_WAITING = (
    *_ONLY_WAITING,
    _rule(r"queue\.py", "get put", ""),
    _rule(r"multiprocessing/connection\.py", "_recv _recv_bytes _send _send_bytes recv_bytes recv", ""),
    _rule(r"multiprocessing/queues\.py", "get put", ""),
    _rule(r"multiprocessing/synchronize\.py", "", ""),
    _rule(r"(?:socket|ssl|asyncio/.*)\.py", "recv_into readinto recv read connect send sendall", ""),
    _rule(r"subprocess\.py", "communicate _communicate", ""),
    _rule(r"concurrent/futures/.*\.py", "result wait", ""),
)
_LOCKS = re.compile(r"(?:^|/)multiprocessing/synchronize\.py$")
_HANDOVER = re.compile(
    r"(?:^|/)(?:multiprocessing/(?:reduction|reductions|queues|connection|resource_sharer)|torch/multiprocessing/.*)\.py$"
)
_LIBRARY = re.compile(
    r"/(?:site-packages|dist-packages|lib/python\d\.\d+|lib64/python\d\.\d+)/|^<frozen|^<string>|/torch/"
    # perfdoctor's own, where it is not installed but developed
    r"|/perfdoctor/(?:inside|lightning|transformers)\.py$|/probes/inside/\w+\.py$"
)


def locate(frames: Sequence[Frame]) -> Place:
    """Tells the place of a stack.

    Args:
        frames: outermost call first.
    """
    if not frames:
        return UNKNOWN
    leaf = frames[-1]
    line = own_line(frames)
    phase, detail = _phase(frames)
    waits = any(_matches(rule, leaf) for rule in _WAITING)
    return Place(phase, detail, waits, any(_matches(rule, leaf) for rule in _ONLY_WAITING), line)


def agrees(place: Place, phase: str, *, told: bool) -> bool:
    """Whether a sampled stack can belong to an instant of which the phase was marked from inside.

    Args:
        place: what the stack tells.
        phase: the marked phase.
        told: it was marked itself; otherwise the instant lies between marks, in the user's own code.
    """
    if told:
        return place.phase == phase
    return place.phase in UNMARKED_PHASES


def marked_place(phase: str, detail: str, sampled: Place, *, told: bool) -> Place:
    """The place at an instant of which the phase was marked, with what a sampled stack adds.

    Args:
        phase: the marked phase.
        detail: a finer place inside it, "" where the marks do not tell.
        sampled: what the stack nearest to the instant tells, ``UNKNOWN`` if there is none that agrees.
        told: as for ``agrees``.
    """
    if not told and sampled.phase != "other":
        return sampled
    # A loader's mark spans the drawing of indices as well as the wait for a batch.
    detail = "sampling" if sampled.detail == "sampling" else detail or sampled.detail
    return replace(sampled, phase=phase, detail=detail)


def _phase(frames: Sequence[Frame]) -> tuple[str, str]:
    for group in _DOMINANT:
        for depth, frame in enumerate(frames):
            for rule in group:
                if _matches(rule, frame):
                    return rule[2], _data_detail(rule[3], frames[depth:])
    for frame in reversed(frames):
        for rule in _INNERMOST:
            if _matches(rule, frame):
                in_engine = rule[2] == "backward" and frame is frames[-1]
                return rule[2], "engine" if in_engine else rule[3]
    return "other", ""


def _matches(rule: _Rule, frame: Frame) -> bool:
    file, functions, _, _ = rule
    return (not functions or frame.simple_name in functions) and file.search(frame.file) is not None


def _data_detail(detail: str, frames: Sequence[Frame]) -> str:
    """Refines the place inside the loader or a worker by the frames below it."""
    names = {frame.simple_name for frame in frames}
    files = [frame.file for frame in frames]
    if detail.startswith("loader") and "_next_index" in names:
        # The loader asks its sampler wherever a batch is handed out, with workers or without.
        return "sampling"
    if detail == "worker":
        if any(file.endswith("torch/utils/data/_utils/fetch.py") for file in files):
            return "fetch"
        if any(_HANDOVER.search(file) for file in files):
            # Below the worker's loop itself: taking the next index, or handing a batch over.
            return "worker idle" if "get" in names and "put" not in names else "hand over"
        return "worker start" if len(frames) > 1 else "worker idle"
    if detail == "loader":
        if any(file.endswith("torch/utils/data/_utils/fetch.py") for file in files):
            return "fetch"
        if names & {
            "_shutdown_workers",
            "_get_iterator",
            "_reset",
            "__del__",
        } or "_MultiProcessingDataLoaderIter.__init__" in {frame.function for frame in frames}:
            return "loader start"
        if names & {"_try_get_data", "_get_data", "_next_data"}:
            return "hand over" if any(_HANDOVER.search(file) for file in files) else "loader wait"
        return "fetch"
    return detail


def holds_lock_frame(frames: Sequence[Frame]) -> bool:
    """Whether the innermost frame queues for a multiprocessing lock."""
    return bool(frames) and _LOCKS.search(frames[-1].file) is not None


def own_line(frames: Sequence[Frame]) -> str:
    """The innermost line of the user's own: no library's, and not perfdoctor's hooks; "" if there is none."""
    for frame in reversed(frames):
        if is_own(frame):
            return f"{frame.file}:{frame.line} {frame.function}"
    return ""


def is_own(frame: Frame) -> bool:
    """Whether a frame is the user's own: no library's, and not perfdoctor's hooks."""
    return bool(frame.file) and not _LIBRARY.search(frame.file)
