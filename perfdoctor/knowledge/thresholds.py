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

REPORTED_SHARE = Threshold(
    0.05,
    "fraction of wall time",
    "from here the TensorBoard plugin and XProf speak of input, and Ascend's advisor calls a problem high",
)
MEDIUM_SEVERITY = Threshold(
    0.15,
    "fraction of wall time",
    "gpuprof's warning level for stalls; XProf and TraceML call 0.20 high, which is between this and the next",
)
HIGH_SEVERITY = Threshold(0.30, "fraction of wall time", "gpuprof's critical level for stalls")
LEAST_LEFT = Threshold(
    0.01,
    "fraction of wall time",
    "judgement: a share closer to 1 would predict a speed-up beyond what the measurement can carry",
)
MOST_OF_A_CAUSE = Threshold(0.5, "fraction of a cause's time", "judgement: more than all the rest together")

# Which cause comes first.
MIN_SHARE = Threshold(
    0.10,
    "fraction of wall time",
    "TraceML's policy warns from here; 15 s at 50 Hz tell it from 0 with certainty (standard error 0.011)",
)
MIN_PYTHON_OVERHEAD = Threshold(
    0.22, "fraction of wall time", "judgement: every job that trains on the CPU has some; more than sound examples"
)
MIN_CONTENTION = Threshold(
    0.15, "fraction of wall time", "judgement: every job that trains on the CPU has some; more than sound examples"
)
MIN_GIL_CONTENTION = Threshold(
    0.12, "fraction of wall time", "judgement: every job that trains on the CPU has some; more than sound examples"
)
MIN_MEMORY_BANDWIDTH = Threshold(
    0.50,
    "fraction of wall time",
    "measured: 0.25 to 0.41 in sound traces; 0.39 of an unfused transformer (Ivanov et al., 'Data movement is all you "
    "need', 2021)",
)
MIN_LOW_OCCUPANCY = Threshold(
    0.15, "fraction of wall time", "judgement: some small kernels are in every job; more than sound traces have"
)
MIN_IMBALANCE = Threshold(
    0.3,
    "fraction of wall time",
    "judgement: ranks whose arithmetic differs wait for each other a little in every job",
)
NEARLY = Threshold(
    0.8, "of the share of a generic cause", "judgement: a specific cause that costs nearly as much says more"
)
NEARLY_LOCK_CONTENTION = Threshold(
    0.6,
    "of the share of a generic cause",
    "judgement: a lock makes its holder's work look guilty, although it only matters because the others queue for it",
)
OVERSTATED_BY_PROFILER = Threshold(
    0.85,
    "of the share of a cause of the host",
    "a profiler slows the host down by 10 to 20 % as a rule, and not the GPU: these causes must lead by more",
)
MAX_UNATTRIBUTED = Threshold(
    0.5, "fraction of wall time", "judgement: where most is unknown, nothing is named that costs less than the unknown"
)
STRAGGLER = Threshold(
    0.8, "fraction of all waiting for ranks", "what TraceML and Ascend's advisor ask of a culprit"
)
CONFIDENCE_OUTSIDE = Threshold(
    0.95, "probability", "judgement: sampling from outside sees states and stacks at different instants"
)
CONFIDENCE_INSIDE = Threshold(
    0.98, "probability", "judgement: phases and steps are exact, but what a thread waits for is still sampled"
)
CONFIDENCE_TRACED = Threshold(0.98, "probability", "judgement: tracing slows the host down")
