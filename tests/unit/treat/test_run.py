"""What a job under trial is started with."""

import pytest

from perfdoctor.treat.run import trackers_offline


@pytest.mark.parametrize(
    ("mode", "kept"), [(None, False), ("online", False), ("", False), ("offline", True), ("disabled", True)]
)
def test_trackers_send_nothing_whatever_the_user_has_exported(mode: str | None, kept: bool) -> None:
    """And one that is switched off stays so: offline it would do more than the job does."""
    found = trackers_offline({} if mode is None else {"WANDB_MODE": mode})
    assert found.get("WANDB_MODE") == (None if kept else "offline")
    assert found["NEPTUNE_MODE"] == "offline"
