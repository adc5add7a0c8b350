"""Puts another tool around the steps of an example, as the tool's documentation asks for, and runs the example.

python benchmarks/peers_inside.py traceml|profiler FOLDER SCRIPT ARGUMENTS
"""

from __future__ import annotations

import gc
import json
import runpy
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import common


def model() -> object:
    """The model that the script has made: the module that is in no other one and has most parameters."""
    from torch import nn

    modules = [one for one in gc.get_objects() if isinstance(one, nn.Module)]
    inner = {id(part) for one in modules for part in one.children()}
    return max((one for one in modules if id(one) not in inner), key=lambda one: len(list(one.parameters())))


class TraceML:
    """``init(mode="auto")`` once, and ``trace_step(model)`` around each step."""

    def __init__(self) -> None:
        import traceml_ai

        traceml_ai.init(mode="auto")
        self._trace_step = traceml_ai.trace_step
        self._model: object = None

    def step(self) -> AbstractContextManager[object]:
        self._model = self._model or model()
        step: AbstractContextManager[object] = self._trace_step(self._model)
        return step


class Profiler:
    """A schedule of some steps, and ``step()`` after each step.

    Args:
        into: where the operator with the most CPU time, and its share, is written.
    """

    def __init__(self, into: Path) -> None:
        from torch.profiler import profile, schedule

        self._into = into
        self._profile = profile(schedule=schedule(wait=20, warmup=5, active=20, repeat=1), on_trace_ready=self._keep)
        self._profile.start()

    @contextmanager
    def step(self) -> Iterator[None]:
        yield
        self._profile.step()

    def _keep(self, _: object) -> None:
        found = self._profile.key_averages()
        times = {one.key: one.self_cpu_time_total for one in found if not one.key.startswith("ProfilerStep")}
        name = max(times, key=lambda key: times[key])
        self._into.write_text(json.dumps([name, times[name] / sum(times.values())]))


def main() -> None:
    kind, folder, script, *arguments = sys.argv[1:]
    tool = TraceML() if kind == "traceml" else Profiler(Path(folder, "profiler.json"))
    common.Run._watched = lambda _, what: tool.step() if what == "step" else nullcontext()  # type: ignore[method-assign]
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
