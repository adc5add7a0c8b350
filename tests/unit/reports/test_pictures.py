"""Bands, flame graphs, steps and the first screen: what is drawn is what was measured."""

import re
from dataclasses import replace

import pytest

from perfdoctor.reports.bands import bands, legend, phases_rows
from perfdoctor.reports.first_screen import milliseconds
from perfdoctor.reports.flame import MAX_BOXES, flame
from perfdoctor.reports.palette import COLORS, Palette
from perfdoctor.reports.step_pictures import shades_of, step_picture, steps_row
from perfdoctor.results.activity import TRAINER, Activity, CodeNode, CodeTree, StepPart, StepParts, StepTimes, Track
from tests.builders import diagnoses

INPUT, COMPUTE, GC = "cpu.input_preprocessing", "cpu.model_compute", "cpu.garbage_collection"


def heights(path: str, bins: int) -> list[int]:
    found = [0] * bins
    for start, width, height in re.findall(r"M(\d+) \d+h(\d+)v(\d+)", path):
        found[int(start) : int(start) + int(width)] = [int(height)] * int(width)
    return found


def test_the_heights_of_a_band_are_the_shares() -> None:
    shares = {INPUT: (0.25, 0.25, 0.0, 1.0), COMPUTE: (0.75, 0.75, 0.0, 0.0)}
    track = Track(TRAINER, 0, 1, 1.0, (True, True, False, True), shares)
    (band,) = bands(Activity(tracks=(track,)), Palette([INPUT]))
    drawn = {layer.title: heights(layer.path, 4) for layer in band.layers}
    assert list(drawn.values()) == [[25, 25, 0, 100], [75, 75, 0, 0]]
    assert heights(band.unseen, 4) == [0, 0, 100, 0]
    assert band.label == "50% preparing the input on the CPU, 50% the model's arithmetic on the CPU"


def test_all_bands_are_stacked_in_the_order_of_the_legend() -> None:
    activity = diagnoses.input_bound_activity()
    entries = [entry.title for entry in legend(activity, Palette([INPUT]))]
    for band in bands(activity, Palette([INPUT])):
        titles = [layer.title for layer in band.layers]
        assert titles == [title for title in entries if title in titles]


def test_a_cause_has_one_colour_and_the_seventh_has_none_of_its_own() -> None:
    causes = [
        "io.storage_read", "io.swap", GC, INPUT, "cpu.contention", "io.log_write", "cpu.throttled",
    ]  # fmt: skip
    palette = Palette([*causes, *causes])
    looks = [palette.of(cause) for cause in causes]
    assert len(set(looks)) == COLORS + 1
    assert looks[-1] == "more"
    assert (palette.of(COMPUTE), palette.of("gpu.compute"), palette.of("unattributed"), palette.of("")) == (
        "ok", "ok", "rest", "idle",
    )  # fmt: skip


def test_a_box_lies_within_its_caller() -> None:
    drawn = flame(diagnoses.input_bound_activity().code[0], Palette([INPUT]))
    main, forward = drawn.boxes
    assert (main.left, main.width, main.depth) == (0.0, 92.0, 0)
    assert (forward.left, forward.width, forward.depth) == (0.0, 30.0, 1)
    assert forward.mixed
    assert forward.until == pytest.approx(66.7)
    assert "Net.forward (home/me/train.py:12) 30%" in forward.says.replace("/home", "home")
    assert drawn.rows == 2


def test_of_many_functions_the_largest_are_drawn_and_none_without_its_caller() -> None:
    leaves = tuple(CodeNode(f"f{n}", "a.py", n, {INPUT: 1 / 1000}) for n in range(900))
    tree = CodeTree(TRAINER, 0, 1, (CodeNode("main", "a.py", 1, {INPUT: 0.9}, leaves),))
    drawn = flame(tree, Palette([INPUT]))
    assert len(drawn.boxes) == MAX_BOXES
    assert drawn.boxes[0].name == "main"


def test_long_steps_are_drawn_apart_and_never_thinned_away() -> None:
    lengths = [0.1] * 5000
    lengths[1777] = 0.9
    parts = StepParts(1, 0.1, ())
    times = StepTimes(0, tuple(n * 0.1 for n in range(5000)), tuple(lengths), 0.2, parts, parts)
    row = steps_row(times, 500.0)
    assert row.long == "M355.4 100V0.0"
    assert row.usual.count("M") < 700
    assert "one is longer than 200 ms" in row.detail
    assert steps_row(replace(times, every=50), 500.0).detail.endswith(", one every 50 steps")


def test_phases_are_stacked_and_steps_begin_at_thin_lines() -> None:
    shares = {"data": (0.25, 0.0, 0.5), "forward": (0.75, 0.0, 0.5)}
    track = Track(TRAINER, 0, 1, 0.5, (True, False, True), shares)
    parts = StepParts(1, 0.1, ())
    times = StepTimes(0, (0.0, 0.75), (0.75, 0.75), 2.0, parts, parts)
    activity = Activity(phases=(track,), steps=(times,))
    (row,) = phases_rows(activity, shades_of(activity))
    drawn = {layer.title: (heights(layer.path, 3), layer.look, share) for layer, share in row.layers}
    assert drawn == {"Forward": ([75, 0, 50], "p0", "62%"), "Data": ([25, 0, 50], "p1", "38%")}
    assert row.borders == "M0.0 0v100M1.5 0v100"
    many = replace(times, starts_s=tuple(n / 1000 for n in range(1500)), lengths_s=(0.001,) * 1500)
    assert phases_rows(replace(activity, steps=(many,)), shades_of(activity))[0].borders == "", "too close to be told"


def test_a_part_of_a_step_that_is_known_by_its_cause_has_its_name_and_colour() -> None:
    usual = StepParts(1, 0.1, (StepPart("forward", 0.0, 0.1),))
    saved = StepPart("other", 0.1, 0.3, "io.checkpoint_write")
    slowest = StepParts(2, 0.4, (StepPart("forward", 0.0, 0.1), saved))
    times = StepTimes(0, (0.0, 0.1), (0.1, 0.4), 0.2, usual, slowest)
    activity = Activity(steps=(times,))
    drawn = step_picture(times, Palette(["io.checkpoint_write"]), shades_of(activity))
    assert drawn.rows[0] == ("Saving checkpoints", "0 s", "300 ms", "300 ms", "c b0")
    assert [piece.look for piece in drawn.steps[1].lanes[0].pieces] == ["p0", "c b0"]
    assert [entry.title for entry in drawn.legend] == ["saving checkpoints"]


def test_a_phase_without_a_name_is_drawn() -> None:
    unnamed = StepParts(1, 0.2, (StepPart("", 0.0, 0.1), StepPart("forward", 0.1, 0.1)))
    activity = Activity(steps=(StepTimes(0, (0.0, 0.2), (0.2, 0.2), 0.3, unnamed, unnamed),))
    drawn = step_picture(activity.steps[0], Palette([]), shades_of(activity))
    assert [piece.look for piece in drawn.steps[0].lanes[0].pieces] == ["p0", "p1"]


def test_two_steps_are_on_one_scale_and_what_differs_most_comes_first() -> None:
    (times,) = diagnoses.input_bound_activity().steps
    drawn = step_picture(times, Palette([INPUT]), shades_of(diagnoses.input_bound_activity()))
    usual, slowest = drawn.steps
    assert [piece.width for piece in usual.lanes[0].pieces] == [60.0, 40.0]
    assert [piece.width for piece in slowest.lanes[0].pieces] == [90.0, 10.0]
    assert (usual.larger, slowest.larger) == (4, 1)
    assert drawn.rows[0][:4] == ("Data", "60 ms", "360 ms", "300 ms")


def test_workers_and_gpus_have_lanes_beside_the_trainer_s() -> None:
    (times,) = diagnoses.input_bound_activity().steps
    drawn = step_picture(times, Palette([INPUT]), shades_of(diagnoses.input_bound_activity()))
    usual, slowest = ([(lane.role, lane.of_one, lane.says) for lane in step.lanes[1:]] for step in drawn.steps)
    unseen = ("gpu", True, "sampled every 500 ms: too rarely for this step")
    assert usual == [("worker", False, "75% preparing the input on the CPU, 25% idle"), unseen]
    assert slowest == [("worker", True, "90% preparing the input on the CPU, 10% idle"), unseen]
    mean, idle = drawn.steps[0].lanes[1].pieces
    assert [(piece.width, piece.height, piece.bottom, piece.look) for piece in (mean, idle)] == [
        (100.0, 75, 0, "c b0"), (100.0, 25, 75, "c idle"),
    ]  # fmt: skip
    assert drawn.rows[-1] == ("A worker is busy (mean)", "75 ms", "360 ms", "285 ms", "")
    assert [entry.title for entry in drawn.legend] == ["preparing the input on the CPU", "idle"]
    assert "40 ms" in drawn.grain


@pytest.mark.parametrize(
    ("shares", "whole"),
    [((0.5, 0.5), [500, 500]), ((1 / 3,) * 3, [334, 333, 333]), ((0.9999, 0.0001), [1000, 0]), ((0.0,), [0])],
)
def test_milliseconds_sum_to_a_second(shares: tuple[float, ...], whole: list[int]) -> None:
    assert milliseconds(shares) == whole


def test_pictures_of_nothing() -> None:
    empty = Activity()
    assert bands(empty, Palette([])) == []
    assert flame(CodeTree(TRAINER, 0, 1, ()), Palette([])).boxes == ()
    assert replace(diagnoses.input_bound(), activity=empty).activity.steps == ()
