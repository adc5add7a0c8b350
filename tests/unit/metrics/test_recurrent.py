"""How much of the forward passes recurrent layers are."""

import pytest

from perfdoctor.knowledge.frames import Frame
from perfdoctor.metrics.arithmetic import in_recurrent
from tests.builders import jobs

MODULES = "/v/lib/python3.11/site-packages/torch/nn/modules"
CALL = (Frame("/job/train.py", "main", 20), Frame(f"{MODULES}/module.py", "Module._call_impl", 1))


@pytest.mark.parametrize(
    ("function", "file", "part"),
    [
        ("LSTM.forward", f"{MODULES}/rnn.py", 0.75),
        ("LSTMCell.forward", f"{MODULES}/rnn.py", None),  # for one piece: that is compiled
        ("forward", f"{MODULES}/rnn.py", None),  # Python 3.10
        ("LSTM.forward", "/job/lstm.py", None),
    ],
)
def test_layers_over_whole_sequences_are_told(function: str, file: str, part: float | None) -> None:
    recurrent, other = Frame(file, function, 900), Frame(f"{MODULES}/linear.py", "Linear.forward", 125)
    stacks = jobs.stacks(10, *[(*CALL, recurrent)] * 3, (*CALL, other), times=200, every_s=0.01)
    found = in_recurrent(jobs.timeline([*jobs.process(10), *jobs.thread(10, 10, run=1.0), *stacks]))
    assert found == (None if part is None else pytest.approx(part, abs=0.02))
