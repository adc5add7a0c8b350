"""How a rank of a test's job leaves its process group."""

# ruff: noqa: TID253
import time

import torch.distributed


def leave_group() -> None:
    """Destroys the group when gloo's threads are through.

    They need the GIL to give up what they finished, and abort a process that ends before they got it (torch 2.13 on a
    busy machine, without perfdoctor too).
    """
    time.sleep(0.3)
    torch.distributed.destroy_process_group()
