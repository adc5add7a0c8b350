"""How much of the arithmetic multiplies, in recordings of real jobs."""

from pathlib import Path

import pytest

from perfdoctor.attribution.multiplying import Multiplying, find_multiplying
from perfdoctor.recording.reader import Recording
from perfdoctor.timeline.job import JobTimeline
from tests.recordings import corpus, packing


def found(name: str, folder: Path) -> Multiplying:
    packing.unpack(corpus.FOLDER / f"{name}{corpus.SUFFIX}", folder / name)
    with Recording.open(folder / name) as recording:
        multiplying = find_multiplying(JobTimeline(recording))
    assert multiplying is not None
    return multiplying


@pytest.mark.parametrize("name", ["sound_char_lm", "sound_gan", "runs_blocks_again"])
def test_models_of_layers_multiply_for_most_of_the_time(name: str, tmp_path: Path) -> None:
    part, others = found(name, tmp_path)
    assert part > 0.8
    assert not others


def test_a_function_that_sorts_and_sums_multiplies_little(tmp_path: Path) -> None:
    part, others = found("metrics_each_batch", tmp_path)
    assert part < 0.4
    line, share = others[0]
    assert line.endswith("average_precision")
    assert 0.2 < share < 0.3


def test_a_layer_that_torch_computes_as_one_is_nothing_to_compile(tmp_path: Path) -> None:
    """Where it multiplies little itself: it is small, and its gates are not."""
    _, others = found("bpe_on_the_fly", tmp_path)
    assert all(share < 0.05 for _, share in others)


def test_what_the_training_loop_calls_is_not_its_own(tmp_path: Path) -> None:
    _, others = found("watched_activations", tmp_path)
    assert not any("<module>" in line for line, _ in others)
