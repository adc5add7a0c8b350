"""Machine code of short steps, which cannot be matched to phases by time, is shared out by what it can be part of."""

from collections import Counter

import pytest

from perfdoctor.breakdown.code_counts import _apart
from perfdoctor.breakdown.code_mix import _fractions
from perfdoctor.scene.phases import AFTERWARDS

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


def test_libraries_are_input_before_the_model_and_overhead_after_it() -> None:
    counts = Counter(kernel=50, library=50)
    before, after = _fractions(counts, "other"), _fractions(counts, AFTERWARDS)
    assert before["cpu.input_preprocessing"] == after["cpu.python_overhead"] == 0.5
    assert "cpu.python_overhead" not in before
    assert "cpu.input_preprocessing" not in after
