import math

import pytest

from perfdoctor.reports import text
from perfdoctor.reports.cards import gain_between
from tests.builders import diagnoses


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (0.62, "fraction", "62%"),
        (0.62, "of the time", "62% of the time"),
        (0.0, "fraction", "0%"),
        (0.001, "fraction", "<1%"),
        (0.999, "fraction", ">99%"),
        (1.0, "fraction", "100%"),
        (62, "%", "62%"),
        (0.0042, "s", "4.2 ms"),
        (4.2, "ms", "4.2 ms"),
        (15.02, "s", "15 s"),
        (12e-6, "s", "12 µs"),
        (250, "ns", "250 ns"),
        (135, "s", "2 min 15 s"),
        (12000, "s", "3 h 20 min"),
        (0, "s", "0 s"),
        (1500, "bytes", "1.5 kB"),
        (3 * 1000**3, "bytes", "3 GB"),
        (2 * 1000**2, "bytes/s", "2 MB/s"),
        (1, "GB", "1 GB"),
        (0.0042, "GB/s", "4.2 MB/s"),
        (12, "/min", "12/min"),
        (1234567, "calls", "1,234,567 calls"),
        (3.14159, "cores", "3.14 cores"),
        (1.0, "processes", "1 process"),
        (1.0, "cores", "1 core"),
        (1.0, "times", "1 times"),
        (7, "", "7"),
        ("train.py:3 main", "", "train.py:3 main"),
    ],
)
def test_a_quantity_is_written_as_a_person_would(value: float | str, unit: str, written: str) -> None:
    assert text.quantity(value, unit) == written


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
@pytest.mark.parametrize("unit", ["fraction", "s", "bytes", ""])
def test_what_is_not_known_is_not_a_zero(value: float | None, unit: str) -> None:
    assert text.quantity(value, unit) == "unknown"


@pytest.mark.parametrize(("factor", "written"), [(1.0, "1.00x"), (1.04, "1.04x"), (1.8, "1.8x"), (12.4, "12x")])
def test_speedup(factor: float, written: str) -> None:
    assert text.speedup(factor) == written


@pytest.mark.parametrize(
    ("name", "value", "row"),
    [
        ("median_s", 0.104, ("Median", "104 ms")),
        ("memory_bytes", 48_300_000, ("Memory", "48.3 MB")),
        ("cpu_cores", 0.031, ("CPU", "3% of one core")),
        ("cpu_cores", None, ("CPU cores", "unknown")),
        ("pid", 4242, ("PID", "4242")),
        ("ranks", [0, 1], ("Ranks", "0, 1")),
        ("quota", None, ("Quota", "unknown")),
        ("forked", True, ("Forked", "yes")),
        ("environment", {"OMP_NUM_THREADS": "1"}, ("Environment", "OMP_NUM_THREADS 1")),
    ],
)
def test_a_free_table_is_written_in_words(name: str, value: object, row: tuple[str, str]) -> None:
    assert text.fact(name, value) == row


def test_clean_text_is_one_printable_line_in_utf8() -> None:
    cleaned = text.clean(diagnoses.TERMINAL_ATTACK + diagnoses.BROKEN)
    assert cleaned.isprintable()
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    assert "second third" in cleaned


def test_code_keeps_its_lines_and_indentation() -> None:
    assert text.clean_lines("if x:\r\n\ty()\x1b[2J\n") == "if x:\n    y()\ufffd[2J"


@pytest.mark.parametrize(
    ("change", "prose"),
    [
        ("Block in queue.get() or event.wait() instead of polling; sleep between polls.", True),
        ("Send images as uint8 and convert on the GPU: batch.to(device).float().div_(255)", True),
        ("Megatron: --decoder-last-pipeline-num-layers N with fewer layers", True),
        ("DataLoader(..., num_workers=4)  # An IterableDataset must split its data.", False),
        ("OMP_NUM_THREADS=2 python train.py", False),
        ("Loader = make(4)", False),
        ("with lock:\n    raw = shared.read(index)", False),
        ("docker update --cpus N CONTAINER", False),
        ("", False),
    ],
)
def test_sentences_are_told_from_code(change: str, prose: bool) -> None:
    assert text.is_prose(change) is prose


@pytest.mark.parametrize(
    ("least", "likely", "most", "told"),
    [
        (1.0, None, 1.004, ""),
        (1.0, None, 1.3, "up to 1.3 times as fast"),
        (1.0, 1.3, 1.3, "up to 1.3 times as fast"),
        (1.0, 1.3, 1.8, "likely 1.3, at most 1.8 times as fast"),
        (1.0, 1.7, 1.8, "up to 1.8 times as fast"),
        (1.0, 1.001, 1.8, "up to 1.8 times as fast"),
        (1.2, 1.25, 1.3, "1.2 to 1.3 times as fast"),
    ],
)
def test_a_gain_that_rounds_to_nothing_is_not_told(least: float, likely: float | None, most: float, told: str) -> None:
    assert gain_between(least, most, likely) == told
