"""Frames of Python stacks, and what those of torch, the standard library and well-known packages tell."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from perfdoctor.knowledge.libraries import is_library


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


class Rule(NamedTuple):
    """What a frame of a library tells.

    Attributes:
        file: matched against the end of the frame's path.
        functions: names without classes; empty for any.
    """

    file: re.Pattern[str]
    functions: frozenset[str]
    phase: str
    detail: str

    def matches(self, frame: Frame) -> bool:
        """Whether the rule is about this frame."""
        return (not self.functions or frame.simple_name in self.functions) and self.file.search(frame.file) is not None


def _rule(file: str, functions: str, phase: str, detail: str = "") -> Rule:
    return Rule(re.compile(rf"(?:^|/){file}$"), frozenset(functions.split()), phase, detail)


# Frames that decide wherever they stand: what is called below them serves them (a torchvision transform is an
# nn.Module, but inside a dataset it is input work).
DOMINANT: tuple[tuple[Rule, ...], ...] = (
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
            r"(?:site|dist)-packages/transformers/"
            r"(?:tokenization|image_processing|video_processing|feature_extraction)_.*\.py",
            "",
            "data",
            "fetch",
        ),
    ),
    (
        # A compiler calls the model's modules, to see what they do.
        _rule(
            r"torch/_(?:dynamo|inductor|functorch)/.*\.py",
            "compile _compile compile_inner transform codegen",
            "other",
            "compile",
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
INNERMOST: tuple[Rule, ...] = (
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

ONLY_WAITING = (
    _rule(r"threading\.py", "wait _wait_for_tstate_lock acquire join _wait", ""),
    _rule(r"multiprocessing/connection\.py", "_poll wait poll accept", ""),
    _rule(r"multiprocessing/(?:popen_fork|popen_spawn_posix|popen_forkserver)\.py", "poll wait", ""),
    _rule(r"selectors\.py", "select", ""),
    _rule(r"socket\.py", "accept", ""),
    _rule(r"subprocess\.py", "wait _wait _try_wait", ""),
)
# These also copy or convert what they waited for.
WAITING = (
    *ONLY_WAITING,
    _rule(r"queue\.py", "get put", ""),
    _rule(r"multiprocessing/connection\.py", "_recv _recv_bytes _send _send_bytes recv_bytes recv", ""),
    _rule(r"multiprocessing/queues\.py", "get put", ""),
    _rule(r"multiprocessing/synchronize\.py", "", ""),
    _rule(r"(?:socket|ssl|asyncio/.*)\.py", "recv_into readinto recv read connect send sendall", ""),
    _rule(r"subprocess\.py", "communicate _communicate", ""),
    _rule(r"concurrent/futures/.*\.py", "result wait", ""),
)
LOCKS = re.compile(r"(?:^|/)multiprocessing/synchronize\.py$")
HANDOVER = re.compile(
    r"(?:^|/)(?:multiprocessing/(?:reduction|reductions|queues|connection|resource_sharer)|torch/multiprocessing/.*)\.py$"
)
_LOADER = re.compile(r"(^|/)torch/utils/data/dataloader\.py$")


def is_own(frame: Frame) -> bool:
    """Whether a frame is the user's own: no library's, and not perfdoctor's hooks."""
    return bool(frame.file) and not is_library(frame.file)


def in_loader(frame: Frame) -> bool:
    """Whether a frame is a DataLoader's."""
    return _LOADER.search(frame.file) is not None
