"""All advice that is printed as code is code: it parses, what it calls exists, and takes the arguments it is given."""

import ast
import builtins
import importlib
import inspect
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from perfdoctor.reports.text import is_prose
from tests.advice.printed import Printed, catalogue, parsed

ALL = list(catalogue())
# What is typed into a shell or a configuration file, and no Python.
COMMANDS = frozenset((
    "arithmetic.all_instructions", "arithmetic.keep_memory", "arithmetic.more_threads",
    "communication.exchange_seldom", "transport.fast_interface", "communication.fewer_channels",
    "communication.fewer_rounds", "communication.half_precision", "transport.let_nccl_choose",
    "transport.log_less",
    "communication.move_overlap", "transport.no_detour", "communication.one_process", "communication.overlap",
    "transport.use_fabric", "cores.fewer_threads", "cores.fewer_threads_beside",
    "cores.find_others", "cores.move_neighbours", "cores.raise_quota",
    "cores.threads_of_quota", "cores.unbind_threads", "cores.wider_mask", "finding.unset", "gpu.allow_tf32_again",
    "gpu.check_late_gpu",
    "gpu.compare_kernels", "gpu.cool", "gpu.more_micro_batches", "gpu.own_gpu", "gpu.power_limit",
    "gpu.power_supply", "gpu.start_mps",
    "gpu.unlock_clocks", "gpu_idle.growing_segments", "gpu_idle.keep_caches", "health.bind_near_gpu",
    "health.defer_compaction", "health.mend_fabric", "health.mend_nvlink", "health.mend_nvlink_errors",
    "health.mend_pcie", "health.mend_pcie_errors", "health.raise_core_clock", "health.replace_gpu",
    "late_ranks.find_late_rank", "late_ranks.watch_all",
    "interpreter.record_stacks", "left_on.no_collective_checks", "left_on.stop_tracer",
    "left_on.stop_watching", "interpreter.wait_for_compiling", "io.copy_to_local",
    "io.faster_reader", "io.keep_in_memory", "io.more_memory", "io.raise_limit",
    "treat.all_instructions", "treat.allocator", "treat.growing_segments", "treat.huge_pages",
    "treat.keep_memory", "treat.sleeping_threads", "treat.staged", "treat.unset",
))  # fmt: skip
# Of these, what Python could read as well.
COMMANDS_ONLY = frozenset(("transport.fast_interface", "transport.log_less"))
# What a build of PyTorch without GPUs lacks.
WITH_GPUS = ("torch.distributed.ProcessGroupNCCL",)
# Names that advice uses as everybody imports them; all others are the user's own, in small letters.
MODULES = (
    "concurrent.futures", "contextlib", "gc", "itertools", "logging", "logging.handlers", "math", "multiprocessing",
    "numpy", "os", "queue", "threading", "torch", "tracemalloc",
)  # fmt: skip
FROM = {
    "torch.distributed.device_mesh": ("init_device_mesh",),
    "torch.distributed.fsdp": (
        "BackwardPrefetch", "FullyShardedDataParallel", "MixedPrecision", "MixedPrecisionPolicy", "ShardingStrategy",
        "fully_shard",
    ),
    "torch.distributed.fsdp.wrap": ("ModuleWrapPolicy",),
    "torch.nn.parallel": ("DistributedDataParallel",),
    "torch.utils.data": ("DataLoader", "DistributedSampler", "RandomSampler"),
    "torch.utils.checkpoint": ("checkpoint",),
    "concurrent.futures": ("ProcessPoolExecutor", "ThreadPoolExecutor"),
}  # fmt: skip
# Packages that advice speaks of and that are not installed for these tests.
ELSEWHERE = (
    "Image",
    "ModelCheckpoint",
    "Trainer",
    "TrainingArguments",
    "gymnasium",
    "kornia",
    "torchcodec",
    "torchvision",
    "transformers",
)
# Classes of the job's own.
OWN = ("Block", "Optimizer")


def python() -> list[Printed]:
    return [
        one for one in ALL if one.id not in COMMANDS_ONLY and parsed(one.fix.change) and not is_prose(one.fix.change)
    ]


def each(printed: list[Printed]) -> Any:
    """One parameter for each text, however many values make it."""
    texts = {one.fix.change: one for one in printed}
    return pytest.mark.parametrize("one", texts.values(), ids=[one.id for one in texts.values()])


@cache
def usual() -> dict[str, Any]:
    """What everybody imports, by the names under which they do."""
    found: dict[str, Any] = {}
    for name in MODULES:
        importlib.import_module(name)
        found[name.partition(".")[0]] = importlib.import_module(name.partition(".")[0])
    for module, names in FROM.items():
        found.update({name: getattr(importlib.import_module(module), name) for name in names})
    return found


def test_what_is_no_python_is_a_sentence_or_a_command() -> None:
    neither = {
        one.id for one in ALL if parsed(one.fix.change) is None and not is_prose(one.fix.change)
    }  # fmt: skip
    assert neither - COMMANDS == set()


@pytest.mark.parametrize("one", [one for one in ALL if one.id in COMMANDS and parsed(one.fix.change) is None][::1])
def test_commands_are_a_shells(one: Printed) -> None:
    if not is_prose(one.fix.change):
        subprocess.run(["bash", "-n"], input=one.fix.change, text=True, check=True, timeout=60)


def imported(tree: ast.Module) -> dict[str, Any]:
    """What a piece of code imports itself."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            found.update({alias.asname or alias.name: getattr(module, alias.name) for alias in node.names})
        elif isinstance(node, ast.Import):
            found.update({alias.name: importlib.import_module(alias.name) for alias in node.names})
    return found


def resolved(node: ast.expr, names: dict[str, Any]) -> Any:
    """What a dotted name is; None where its first part is the job's own. Raises AttributeError if it is not there."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = resolved(node.value, names)
        if owner is None:
            return None
        try:
            return getattr(owner, node.attr)
        except AttributeError:
            if inspect.ismodule(owner):
                return importlib.import_module(f"{owner.__name__}.{node.attr}")
            raise
    return None


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


@each(python())
def test_what_advice_calls_exists_and_takes_what_it_is_given(one: Printed) -> None:
    tree = parsed(one.fix.change)
    assert tree is not None
    names = {**usual(), **imported(tree)}
    without = () if names["torch"].distributed.is_nccl_available() else WITH_GPUS
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not ast.unparse(node).startswith(without):
            resolved(node, names)
        if isinstance(node, ast.Name) and node.id[0].isupper():
            own = (one.name for one in ast.walk(tree) if isinstance(one, ast.ClassDef))
            known = (*names, *own, *ELSEWHERE, *OWN, *dir(builtins))
            assert node.id in known, f"{node.id} is nobody's"
    for call in calls(tree):
        called = None if ast.unparse(call.func).startswith(without) else resolved(call.func, names)
        if called is None:
            continue
        try:
            parameters = inspect.signature(called).parameters
        except (TypeError, ValueError):  # of C, without a signature
            continue
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            continue
        for keyword in call.keywords:
            assert keyword.arg is None or keyword.arg in parameters, f"{ast.unparse(call)}: no {keyword.arg}"


@each(ALL)
def test_no_advice_calls_what_is_private_to_torch(one: Printed) -> None:
    tree = parsed(one.fix.change)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch."):
            assert not node.attr.startswith("_") or node.attr.startswith("_scaled_dot_product"), ast.unparse(node)


def test_lines_fit_a_terminal() -> None:
    """Code is not wrapped: what is longer cannot be copied whole from 120 columns."""
    long = {
        line for one in ALL if not is_prose(one.fix.change) for line in one.fix.change.split("\n") if len(line) > 120
    }
    assert long == set()
