"""What subcommands' options are read by."""

import argparse
from collections.abc import Callable


def duration(unit: str, in_a_day: int) -> Callable[[str], float]:
    """Reads a duration of less than a day.

    Args:
        unit: in which it is given, for the message where it is none.
        in_a_day: how many of these a day has.
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < in_a_day:
            raise argparse.ArgumentTypeError(f"must be more than 0 and less than a day, in {unit}")
        return value

    return read
