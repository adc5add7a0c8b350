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

BUSY_THREAD = Threshold(0.15, "of the time around an instant", "judgement: an idle helper thread wakes up now and then")
COMPUTES_IN_PYTHON = Threshold(
    0.5, "of its time on a core", "judgement: a thread that holds the GIL for most of that computes in Python itself"
)
SUPPLIED_BY_THREADS = Threshold(
    0.02, "of the samples", "judgement: a trainer that waits for others less is not supplied by its own threads"
)
REGULAR_CALL = Threshold(
    0.05, "of the model's time", "judgement: a line with less of it is no training, but a validation now and then"
)
SEEMINGLY_IDLE_CORES = Threshold(
    0.2, "cores", "measured: perfdoctor's own use, and the coarse clock of other processes' times"
)
IDLE_CORES_LEFT_OUT = Threshold(
    0.5, "cores", "judgement: with so many idle ones outside the job's mask, the mask is why its threads queue"
)
SWAP_BYTES_PER_S = Threshold(
    256 * 1024, "bytes/s", "judgement: less is background noise of a host (a page is 4 KiB)"
)
STATE_WRITTEN_PER_S = Threshold(10e6, "bytes/s", "judgement: who writes more to storage saves state; logs are kilobytes")
STATE_BYTES_PER_CALL = Threshold(
    6000,
    "bytes/call",
    "measured: files that Python buffers pass on 8 kB at a time, arrays 240 kB and more; SQLite writes pages of 4 kB",
)
MAJOR_FAULTS_PER_S = Threshold(
    10.0, "faults/s", "measured: a mapped dataset takes 20 with read-ahead and 1,000 without; fewer are start-up noise"
)
LOCK_QUEUE = Threshold(0.15, "workers", "judgement: with fewer queueing in the mean, the lock is not to blame")
IDLE_WORKER_USE = Threshold(0.02, "cores", "judgement: a worker that uses less is idle")

# --- attribution: where the seconds went ----------------------------------------------------------------------------

RUN_QUEUE_DELAY = Threshold(
    0.02, "of the wanted CPU time", "judgement: a wake-up that costs less is the scheduler's everyday business"
)
SURE_DELAY = Threshold(
    0.25,
    "of the wanted CPU time",
    "judgement: a thread of the pool that lacks a CPU for so long explains all spinning at a barrier",
)
STATE_BYTES_PER_S = Threshold(
    2_000_000,
    "bytes per second of waiting",
    "judgement: a slow disk takes more of a large write, and a synced log line is some hundred bytes per 1 to 20 ms",
)
CODE_SAMPLES = Threshold(20, "samples", "judgement: fewer in a phase say nothing about it (standard error above 0.11)")
UNKNOWN_CODE = Threshold(
    0.2, "of a phase's samples", "judgement: with more without a symbol (the recorder was killed), the rest misleads"
)
MOSTLY_CALLS = Threshold(0.5, "of the samples", "judgement: more than half is most")
DISPATCHING = Threshold(
    0.3,
    "of interpreter and dispatch",
    "judgement: with more dispatch, code that prepares the input is a loop of tiny operators, no costly preparation",
)
BLURRED_STACKS_PER_S = Threshold(
    7.0,
    "changes/s",
    "measured: nearly every stack sample (20 per second) then differs from the one before, so steps are too short",
)
SEEN_OUTSIDE_STEPS = Threshold(
    1.25, "times", "measured: stacks are seen some hundred times, so the time outside of steps may be so much longer"
)
CONTENDED_GIL = Threshold(0.1, "of the samples", "judgement: held by another thread in fewer, the GIL is not contended")
GIL_SWITCH_S = Threshold(
    25e-6, "seconds", "measured on a virtual machine: 17 us for one switch with its two calls of futex; at most this"
)
CULPRIT_SHARE = Threshold(0.25, "of a cause's time", "judgement: a cause lies in every rank that has so much of it")
SMALL_PACKET_BYTES = Threshold(
    4096,
    "bytes",
    "measured on loopback: many small messages 100 to 600, large buffers 20,000 to 60,000; an Ethernet frame is 1,500",
)
LARGE_PACKET_BYTES = Threshold(
    24_000,
    "bytes",
    "measured: 32 to 55 kB where bytes take the time on however slow a link, 6 to 15 kB for a few small buckets",
)
LOOPBACK_BYTES_PER_S = Threshold(1e9, "bytes/s", "measured: 1.2e9 between two gloo ranks on two busy cores")
UNFILLED_LINK = Threshold(
    0.25, "of what a link carries", "judgement: filled to less while ranks are in collectives, it is not waited for"
)

# --- metrics: numbers beside the account ----------------------------------------------------------------------------

# --- traces: profiler traces and tables of operations ---------------------------------------------------------------

# --- rules: what comes first, what is reported, what is advised -----------------------------------------------------
