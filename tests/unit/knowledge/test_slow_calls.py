"""Calls of libraries that are slow in one known way."""

import pytest

from perfdoctor.knowledge.slow_calls import SLOW_CALLS, kind_of_call
from perfdoctor.reports.chinese import slow_calls as chinese
from perfdoctor.reports.english import slow_calls as english


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("random Random.sample", "drawn"),
        ("random sample", "drawn"),  # Python 3.10 has no classes there
        ("PIL GifImageFile.seek", "frames"),
        ("scipy IndexMixin", "sparse parts"),
        ("yaml safe_load", "yaml"),
        ("pandas AbstractHolidayCalendar.holidays", "holidays"),
        ("numpy stack", ""),
        ("other sample", ""),
        (None, ""),
    ],
)
def test_a_call_is_known_whatever_its_class(call: str | None, kind: str) -> None:
    assert kind_of_call(call) == kind


def test_each_kind_has_words_in_both_languages() -> None:
    assert set(english.CHEAPER_CALLS) == set(chinese.CHEAPER_CALLS) == set(SLOW_CALLS)
