"""From which version of PyTorch on there is what advice calls, and which Pythons it compiles models for.

Read in the sources of versions 2.0 to 2.13. A version that is not known counts as a new one.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

Version = tuple[int, int]


class Since(NamedTuple):
    """A part of PyTorch that is younger than version 2.0.

    Attributes:
        code: what calls it, searched for in the code of advice.
        name: by which advice speaks of it.
        torch: the first version that has it.
    """

    code: re.Pattern[str]
    name: str
    torch: Version


def _since(code: str, name: str, major: int, minor: int) -> Since:
    return Since(re.compile(code), name, (major, minor))


SINCE = (
    # torch/nn/modules/module.py
    _since(r"\w\.compile\(\)", "Module.compile", 2, 1),
    # torch/optim/swa_utils.py
    _since(r"\bget_ema_multi_avg_fn\b", "get_ema_multi_avg_fn", 2, 1),
    # torch/utils/deterministic.py
    _since(r"\btorch\.utils\.deterministic\b", "torch.utils.deterministic", 2, 2),
    # torch/amp/grad_scaler.py; torch.cuda.amp has one before
    _since(r"\btorch\.amp\.GradScaler\b", "torch.amp.GradScaler", 2, 3),
    # torch/distributed/checkpoint/__init__.py
    _since(r"\basync_save\b", "async_save", 2, 3),
    # torch/optim/sgd.py and adagrad.py; on a GPU SGD has it from 2.3 on
    _since(r"\b(?:SGD|Adagrad)\(.*\bfused=True", "fused=True", 2, 4),
    # torch/utils/checkpoint.py
    _since(r"\bCheckpointPolicy\b", "CheckpointPolicy", 2, 5),
    # torch/distributed/fsdp/__init__.py; torch.distributed._composable.fsdp has both before
    _since(r"\bfully_shard\b|\bMixedPrecisionPolicy\b", "torch.distributed.fsdp.fully_shard", 2, 6),
    # torch/utils/data/dataloader.py
    _since(r"\bin_order=", "in_order", 2, 6),
)
# The first version whose fused steps run on a CPU (torch/utils/_foreach_utils.py).
FUSED_ON_CPU: Version = (2, 4)
# Python to the first version that compiles for it (torch/__init__.py, compile); for those before 3.12 all do.
_COMPILES: Mapping[Version, Version] = {(3, 12): (2, 4), (3, 13): (2, 6), (3, 14): (2, 10)}


def is_older(version: str | None, than: Version) -> bool:
    """Whether a version as its package reports it (``2.13.0+cpu``) is known, and before another one."""
    return (read := _read(version)) is not None and read < than


def compiles(torch: str | None, python: str | None) -> bool:
    """Whether a version of PyTorch may compile models under a version of Python."""
    needed = _COMPILES.get(_read(python) or (0, 0))
    return needed is None or not is_older(torch, needed)


def missing_parts(torch: str | None) -> tuple[Since, ...]:
    """What a version of PyTorch does not have yet."""
    return tuple(part for part in SINCE if is_older(torch, part.torch))


def _read(version: str | None) -> Version | None:
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    return None if numbers is None else (int(numbers[1]), int(numbers[2]))
