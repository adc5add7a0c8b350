"""Source around the lines that cost most, as far as a recording holds it."""

from collections.abc import Iterable

from perfdoctor.analysis.source import read_source
from perfdoctor.recording.own_source import SOURCE_NOT_READ, SourceLine
from perfdoctor.recording.schema import Fact, Sample
from perfdoctor.results.activity import SourceView
from tests.builders import jobs

INPUT, COMPUTE = "cpu.input_preprocessing", "cpu.model_compute"


def lines(file: str, numbers: Iterable[int], *, changed: bool = False) -> list[Sample]:
    return [SourceLine(file, number, f"line {number}", changed) for number in numbers]


def read(samples: Iterable[Sample], shares: dict[tuple[str, str], float]) -> SourceView:
    return read_source(jobs.timeline(samples), shares)


def test_each_line_has_its_share_and_the_excerpt_that_costs_most_comes_first() -> None:
    shares = {
        ("/a/b c.py:30 load", INPUT): 0.3,
        ("/a/b c.py:31 load", COMPUTE): 0.002,
        ("/a/b c.py:31 load", INPUT): 0.003,
        ("/a/net.py:5 forward", COMPUTE): 0.4,
        ("/a/net.py:90 forward", COMPUTE): 0.001,
    }
    samples = [*lines("/a/b c.py", range(20, 41)), *lines("/a/net.py", range(1, 91), changed=True)]
    first, second = read(samples, shares).excerpts
    assert (first.file, first.function, first.changed, first.share) == ("/a/net.py", "forward", True, 0.4)
    assert [line.number for line in first.lines] == [2, 3, 4, 5, 6, 7, 8]
    assert [line.number for line in second.lines] == [27, 28, 29, 30, 31, 32, 33]
    assert [(line.share, line.cause) for line in second.lines[3:5]] == [(0.3, INPUT), (0.005, INPUT)]
    assert not second.changed
    assert second.lines[3].text == "line 30"


def test_near_lines_are_one_excerpt_and_far_ones_two() -> None:
    shares = {(f"/a.py:{line} main", INPUT): 0.1 for line in (10, 18, 40)}
    found = read(lines("/a.py", range(1, 60)), shares).excerpts
    assert [(one.lines[0].number, one.lines[-1].number) for one in found] == [(7, 21), (37, 43)]


def test_what_is_not_held_is_not_shown_and_why_is_said() -> None:
    shares = {("/gone.py:3 main", INPUT): 0.5, ("/a.py:9 main", INPUT): 0.2, ("odd", INPUT): 0.1}
    fact = Fact(jobs.START, "source", "file:/gone.py", SOURCE_NOT_READ, "No such file")
    found = read([fact, *lines("/a.py", (1, 2))], shares)
    assert found == SourceView((), (("/gone.py", "No such file"),))
    assert read([], shares) == SourceView()
