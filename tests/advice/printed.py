"""The advice as reports print it: every piece of the catalogue, with values that it may have."""

import ast
import inspect
import itertools
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import perfdoctor.reports
from perfdoctor.diagnosis import Evidence, Fix

WAYS = ("", "no", "ddp", "fsdp", "fully_shard", "deepspeed", "megatron", "transformers", "lightning")
KINDS = ("images", "sound", "video", "text", "arrays", "")
# Values that mean something, by name; a piece of advice takes those that it has words for.
VALUES: dict[str, tuple[Any, ...]] = {
    "way": WAYS,
    "kind": KINDS,
    "loop": ("", "transformers", "lightning"),
    "name": ("NCCL_P2P_DISABLE",),
    "path": ("/data/train.bin",),
    "split": ((((0, 1), (2, 3)),), (((0,), (1,)), ((2,), (3,))), (((0,), ()), ((1,), ()))),
    "places": (("/data/train.bin", "/data/images"),),
    "line": ("train.py:12 step",),
    "when": ("", "(step + 1) % 4 == 0"),
    "pieces": (
        (("self.keys", "batch", "[at]"), ("self.ages", "torch.zeros(len(batch))", "[at]")),
        (("kept", "torch.arange(n)", ""),),
    ),
    "layer": ("LSTM", "GRU"),
    "update": ("Adam", "SGD"),
    "lines": (("train.py:12 step",),),
    "tight": ((1200.0, 800.0), None),
    "culprits": (((123, "stress", 1.5),), ()),
    "variables": ((("MALLOC_CONF", "narenas:1"),),),
    "neighbours": (((123, "stress", 1.5),), ()),
}
BY_TYPE: dict[str, tuple[Any, ...]] = {
    "str": ("some",),
    "bool": (True, False),
    "int": (2,),
    "float": (0.4,),
    "Evidence": (Evidence("a number", 3.0, "MB/s", "test"),),
}


class Printed(NamedTuple):
    """One piece of advice with its words.

    Attributes:
        id: of its message, as in ``perfdoctor.diagnosis.advise``.
        values: that it was given.
    """

    id: str
    values: dict[str, Any]
    fix: Fix


def catalogue() -> Iterator[Printed]:
    """Every piece of advice, with every combination of values."""
    for file in sorted((Path(perfdoctor.reports.__path__[0]) / "english").glob("*.py")):
        module = import_module(f"perfdoctor.reports.english.{file.stem}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and inspect.get_annotations(function).get("return") is Fix:
                yield from _with_values(f"{file.stem}.{name}", function)


def advice(id: str, **values: Any) -> str:
    """The code of one piece of advice, as it is printed with these values and the first of all others."""
    family, _, name = id.partition(".")
    function = getattr(import_module(f"perfdoctor.reports.english.{family}"), name)
    parameters = inspect.get_annotations(function)
    del parameters["return"]
    assert values.keys() <= parameters.keys()
    usual = {name: _choices(name, kind)[0] for name, kind in parameters.items()}
    fix: Fix = function(**{**usual, **values})
    return fix.change


def _with_values(id: str, function: Any) -> Iterator[Printed]:
    parameters = inspect.get_annotations(function)
    del parameters["return"]
    choices = [_choices(name, kind) for name, kind in parameters.items()]
    made = []
    for values in itertools.product(*choices):
        given = dict(zip(parameters, values, strict=True))
        try:
            made.append(Printed(id, given, function(**given)))
        except KeyError:
            continue  # a way or a kind that it is not for
    assert made, id
    yield from made


def _choices(name: str, annotation: Any) -> tuple[Any, ...]:
    kind = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    first, _, rest = kind.partition(" | ")
    known = VALUES.get(name) or BY_TYPE[first.rpartition(".")[2]]
    return (*known, None) if rest == "None" and None not in known else known


def parsed(change: str) -> ast.Module | None:
    """A change as Python; None where it is a command or a sentence."""
    try:
        return ast.parse(change)
    except SyntaxError:
        return None
