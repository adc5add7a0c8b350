"""What is switched off to weigh it is there: whoever moves it learns so before somebody weighs it."""

import importlib
from operator import attrgetter

import pytest

from tests.recordings.weigh import REPLACEMENTS, changes


@pytest.mark.parametrize("name", changes())
def test_a_mechanism_is_where_the_table_says(name: str) -> None:
    change = changes()[name]
    assert attrgetter(change.name)(importlib.import_module(change.module))
    assert change.name in ("TRAINER", "SUPPLIER") or change.value in REPLACEMENTS
