"""Every number at which a decision of the analysis turns: its value, its unit, and where it comes from.

A threshold is a float and used as one. Read it as ``thresholds.NAME`` where it is needed, so that it can be moved.
``docs/thresholds.md`` lists all of them, and how far each may move before a verdict of the recordings in
``tests/recordings/`` turns.
"""

from __future__ import annotations


class Threshold(float):
    """A number at which a decision turns.

    Attributes:
        unit: what it counts: a fraction of what, seconds, bytes …
        source: where the value comes from: a paper, a tool's policy, a data sheet, or what was measured.
    """

    unit: str
    source: str

    def __new__(cls, value: float, unit: str, source: str) -> Threshold:
        """A threshold of a value."""
        threshold = super().__new__(cls, value)
        threshold.unit, threshold.source = unit, source
        return threshold


# --- timeline: what each thread did ---------------------------------------------------------------------------------

# --- attribution: where the seconds went ----------------------------------------------------------------------------

# --- metrics: numbers beside the account ----------------------------------------------------------------------------

# --- traces: profiler traces and tables of operations ---------------------------------------------------------------

# --- rules: what comes first, what is reported, what is advised -----------------------------------------------------
