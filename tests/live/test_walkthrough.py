"""The walkthrough's job trains at each end of the story, and the story makes every change that the job knows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "walkthrough"))
import gpt
import walk

WALKTHROUGH = Path(gpt.__file__).parent


@pytest.mark.parametrize("changes", [(), gpt.CHANGES], ids=["as it begins", "with all changes"])
def test_the_job_trains(changes: tuple[str, ...]) -> None:
    command = [sys.executable, str(WALKTHROUGH / "gpt.py"), *changes, "--seconds", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    ready, pace = done.stdout.splitlines()
    assert ready == "ready"
    assert re.fullmatch(r"[1-9]\d* tokens/s", pace)


def test_the_story_makes_every_change_once() -> None:
    assert [change.name for change in walk.STORY] == list(gpt.CHANGES)


def test_both_kinds_of_attention_see_the_past_alone() -> None:
    """The change is about speed: what a place sees must not depend on what comes after it."""
    import torch

    for together in (False, True):
        torch.manual_seed(0)
        attention, x = gpt.Attention(together=together), torch.randn(2, gpt.CONTEXT, gpt.WIDTH)
        later = x.clone()
        later[:, -1] += 1
        before, after = attention(x), attention(later)
        assert torch.allclose(before[:, :-1], after[:, :-1], atol=1e-5)
        assert not torch.allclose(before[:, -1], after[:, -1], atol=1e-5)
