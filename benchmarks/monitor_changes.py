"""How often `perfdoctor monitor` tells of a change of a size, on made beats whose truth is known.

    python benchmarks/monitor_changes.py [--runs 20]

Beats of 30 s over five hours; after three the job becomes slower. They vary by a fraction, and each remembers a part of
the one before.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from perfdoctor.results.history import Happened, Incident
from tests.builders.histories import BEGAN, HOUR, beats, told

CHANGE_S = 3 * HOUR
STEP_S = 0.1
RESTLESS = ((0.01, 0.5), (0.04, 0.5), (0.04, 0.9))
SIZES = (0.04, 0.07, 0.1, 0.3)
SLOWER = (Happened.SLOWER, Happened.DIP)


def becomes_slower(size: float) -> Callable[[float], float]:
    """Seconds per step at an instant."""
    return lambda at_s: STEP_S * (1 + size if at_s >= CHANGE_S else 1)


def is_found(incident: Incident) -> bool:
    """Whether an incident is the planted change."""
    return incident.what in SLOWER and abs(incident.since - BEGAN - CHANGE_S) < 600


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    print("| beats vary by | and remember | slower by | reported | its date is off by, median | also reported |")
    print("|---|---|---|---|---|---|")
    for noise, memory in RESTLESS:
        for size in SIZES:
            each = [told(beats(5, becomes_slower(size), noise=noise, memory=memory, seed=seed)) for seed in range(runs)]
            hits = [incident for found in each for incident in found if is_found(incident)]
            off_s = [abs(incident.since - BEGAN - CHANGE_S) for incident in hits]
            others = sum(len(found) for found in each) - len(hits)
            date = f"{statistics.median(off_s):.0f} s" if off_s else ""
            cells = (
                f"{noise:.0%}",
                f"{memory:g} of the last",
                f"{size:.0%}",
                f"{len(hits)} of {runs}",
                date,
                str(others),
            )
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
