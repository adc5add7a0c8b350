"""What causes are called."""

from perfdoctor.causes import CAUSES


def title(*, cause: str) -> str:
    return CAUSES[cause].title
