"""Machine code of short steps, which cannot be matched to phases by time, is shared out by what it can be part of."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfdoctor.code_mix import _after_the_model, _apart, _fractions
from perfdoctor.phases import Frame, locate

SAMPLES = Counter(kernel=500, dispatch=100, interpreter=100, library=300)


def test_libraries_work_in_the_jobs_own_code() -> None:
    step, own = _apart(SAMPLES, 0.5)
    assert step["library"] == 0
    assert own["library"] == 300
    assert step.total() == pytest.approx(own.total())
    assert {kind: step[kind] + own[kind] for kind in SAMPLES} == pytest.approx(dict(SAMPLES))


def test_what_has_no_room_in_own_code_stays_in_steps() -> None:
    step, own = _apart(SAMPLES, 0.1)
    assert own == Counter(library=100)
    assert step["library"] == 200


@pytest.mark.parametrize("own", [0.0, 0.001, 0.999, 1.0])
def test_a_handful_of_samples_makes_no_mix_of_its_own(own: float) -> None:
    assert _apart(SAMPLES, own) == (SAMPLES, SAMPLES)


def after_the_model(*stacks: list[Frame]) -> float:
    """The answer for a main thread that was seen once in each of these stacks."""
    places = [locate(stack) for stack in stacks]
    track = SimpleNamespace(stacks=np.arange(len(stacks)))
    scene: Any = SimpleNamespace(
        stacks=SimpleNamespace(main_track=lambda pid: track, frames=stacks, places=places)
    )
    return _after_the_model(scene, 1)


def loop(line: int) -> Frame:
    return Frame("/home/me/train.py", "train", line)


MODEL = Frame("/env/lib/python3.11/site-packages/torch/nn/modules/module.py", "Module._call_impl", 1789)
HELPER = Frame("/home/me/tools.py", "work", 3)


def test_what_the_loop_does_below_the_models_call_prepares_no_input() -> None:
    assert after_the_model([loop(11), MODEL], [loop(10), HELPER], [loop(12), HELPER]) == 0.5
    assert after_the_model([loop(11), MODEL], [loop(10), HELPER]) == 0.0
    # The line of the call itself may prepare its argument.
    assert after_the_model([loop(11), MODEL], [loop(11), HELPER]) == 0.0
    # Another function's lines tell no order.
    assert after_the_model([loop(11), MODEL], [Frame("/home/me/train.py", "main", 40), HELPER]) == 0.0


def test_libraries_are_input_before_the_model_and_overhead_after_it() -> None:
    counts = Counter(kernel=50, library=50)
    before, after = _fractions(counts, 0.0), _fractions(counts, 1.0)
    assert before["cpu.input_preprocessing"] == after["cpu.python_overhead"] == 0.5
    assert before["cpu.python_overhead"] == after["cpu.input_preprocessing"] == 0
