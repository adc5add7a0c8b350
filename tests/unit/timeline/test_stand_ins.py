"""What stands for very many samples."""

import random

import pytest

from perfdoctor.timeline.stand_ins import drawn, stand_ins

COUNT, GROUPS = 10_000, 200


def test_few_samples_stand_for_themselves() -> None:
    assert stand_ins([0.5, 0.0, 2.0], "RSR", groups=3) == {0: 0.5, 2: 2.0}
    assert stand_ins([], "", groups=3) == {}
    assert list(drawn([1, 2, 3], 3)) == [1, 2, 3]


def test_each_kind_keeps_its_weight_wherever_it_was_seen() -> None:
    kinds = ["D" if 4_000 <= number < 4_003 else "R" for number in range(COUNT)]
    found = stand_ins([0.02] * COUNT, kinds, GROUPS)
    assert GROUPS <= len(found) <= GROUPS + 2
    assert list(found) == sorted(found)
    blocked = {number: weight for number, weight in found.items() if kinds[number] == "D"}
    assert sum(blocked.values()) == pytest.approx(3 * 0.02)
    assert sum(found.values()) == pytest.approx(COUNT * 0.02)
    assert set(blocked) <= {4_000, 4_001, 4_002}


@pytest.mark.parametrize("period", [2, COUNT // GROUPS, 7])
def test_a_rhythm_of_the_job_is_met_in_all_its_parts(period: int) -> None:
    """Every fiftieth sample of a loop that takes fifty would always be the same part of it."""
    first_half = [number for number in range(COUNT) if number % period < period // 2]
    numbers = drawn(range(COUNT), GROUPS)
    assert len(numbers) == GROUPS
    assert len(set(first_half) & set(numbers)) / GROUPS == pytest.approx(len(first_half) / COUNT, abs=0.1)


def test_what_else_differs_is_told_by_those_that_were_drawn() -> None:
    lines = random.Random(1).choices("abc", [5, 3, 2], k=COUNT)
    found = stand_ins([1.0] * COUNT, "R" * COUNT, 2_000)
    assert sum(weight for number, weight in found.items() if lines[number] == "a") / COUNT == pytest.approx(
        0.5, abs=0.03
    )
