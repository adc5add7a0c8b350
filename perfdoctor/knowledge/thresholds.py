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

    def __getnewargs__(self) -> tuple[float, str, str]:  # type: ignore[override]
        """What a copy is made of: a threshold may become a value of a finding, which is copied."""
        return float(self), self.unit, self.source


# --- timeline: what each thread did ---------------------------------------------------------------------------------

CPU_USE_AROUND_S = Threshold(
    0.03,
    "seconds",
    "judgement: the kernel counts in scheduler ticks of 1 to 10 ms, so less is noise, and more blurs short phases",
)
STACK_REACH_S = Threshold(0.4, "seconds", "judgement: several samples of py-spy at its slowest rate")
SAME_INSTANT_S = Threshold(
    0.003, "seconds", "judgement: most lines take longer; both samplers' clocks are known to half a millisecond"
)
GIL_REACH_S = Threshold(0.1, "seconds", "judgement: some samples of the interpreter probe at its slowest rate")
LOCK_QUEUE_AROUND_S = Threshold(0.25, "seconds", "judgement: queues for short locks form and vanish within a sample")
USUAL_VALIDATION = Threshold(
    0.5,
    "of the steps",
    "judgement: what seems to be a validation in more of them is a part of the step, a teacher's forward pass",
)
YOUNG_S = Threshold(
    60.0,
    "seconds",
    "judgement: loading PyTorch takes seconds, from a slow disk a minute; older jobs have begun to train",
)
LONG_STEP = Threshold(
    3.0,
    "standard deviations above the median, estimated from the median absolute deviation",
    "Hampel's identifier with the usual 3 (Davies and Gather 1993; Pearson 2002)",
)
BUSY_THREAD = Threshold(0.15, "of the time around an instant", "judgement: an idle helper thread wakes up now and then")
STANDS_IN = Threshold(
    0.8, "of its samples", "judgement: a thread that works by turns with another; one tick in five may fall between"
)
BACKWARD_THREAD = Threshold(0.05, "cores", "judgement: less is a thread's housekeeping")
COMPUTES_IN_PYTHON = Threshold(
    0.5, "of its time on a core", "judgement: a thread that holds the GIL for most of that computes in Python itself"
)
SUPPLIED_BY_ITS_OWN = Threshold(
    0.02, "of the samples", "judgement: a trainer that waits for others less gets nothing from its threads and helpers"
)
REGULAR_CALL = Threshold(
    0.05, "of the model's time", "judgement: a line with less of it is no training, but a validation now and then"
)
FEWEST_PASSES = Threshold(5, "times", "judgement: fewer do not say how many samples lie between two of training")
PASSES_WITHOUT_TRAINING = Threshold(
    10.0,
    "times the median of samples between two of training",
    "numbers of samples between two of a kind are geometric: 7 means, 10 medians, in one case of 1,000 (exp(-7))",
)
PASSES_OF_STEPS = Threshold(
    3.0,
    "times the median of samples of passes in a step that has any",
    "judgement: slow steps are seen in about as many of them each, and an evaluation has more batches than one",
)
SEEMINGLY_IDLE_CORES = Threshold(
    0.2, "cores", "measured: perfdoctor's own use, and the coarse clock of other processes' times"
)
IDLE_CORES_LEFT_OUT = Threshold(
    0.5, "cores", "judgement: with so many idle ones outside the job's mask, the mask is why its threads queue"
)
SWAP_BYTES_PER_S = Threshold(256 * 1024, "bytes/s", "judgement: less is background noise of a host (a page is 4 KiB)")
UNPICKLES_OBJECTS = Threshold(
    0.15,
    "of the running time",
    "measured: taking over tensors took up to 0.07 of it in trainers that compute most of the time, nested objects "
    "0.19 to 0.5",
)
STATE_WRITTEN_PER_S = Threshold(10e6, "bytes/s", "judgement: who writes more to storage saves state, logs are small")
STATE_BYTES_PER_CALL = Threshold(
    6000,
    "bytes/call",
    "measured: files that Python buffers pass on 8 kB at a time, arrays 240 kB and more, SQLite pages of 4 kB",
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
MULTIPLIES_LITTLE = Threshold(
    0.35, "of a function's arithmetic", "measured: 0.08 to 0.30 in functions that wrote out what one call computes"
)
CERTAIN_CODE_S = Threshold(
    0.0015, "seconds", "measured: of steps of 30 ms, code seems to be that of the phases beside it from 3 ms on"
)
CERTAIN_CODE_SAMPLES = Threshold(5, "samples", "judgement: of fewer, more than half may be of one kind by chance")
PRIOR_SAMPLES = Threshold(
    2, "samples", "convention: as many as what was believed before counts for in Laplace's rule of succession"
)
UNKNOWN_CODE = Threshold(
    0.2, "of a phase's samples", "judgement: with more without a symbol (the recorder was killed), the rest misleads"
)
BLURRED_STACKS_PER_S = Threshold(
    7.0,
    "changes/s",
    "measured: nearly every stack sample (20 per second) then differs from the one before, so steps are too short",
)
SEEN_OUTSIDE_STEPS = Threshold(
    1.25, "times", "measured: stacks are seen some hundred times, so the time outside of steps may be so much longer"
)
CONTENDED_GIL = Threshold(
    0.05, "of the samples", "judgement: held by another thread in fewer, the GIL is not contended"
)
GIL_SWITCH_S = Threshold(
    25e-6, "seconds", "measured on a virtual machine: 17 us for one switch with its two calls of futex; at most this"
)
FORKS = Threshold(3, "times between forks", "judgement: in fewer, what a job does once passes for what each fork costs")
BURST = Threshold(
    0.125, "of the usual time between forks", "judgement: nearer to the next one it is of the same start of workers"
)
COPIED_PAGE = Threshold(
    1.35,
    "times a page of fresh memory",
    "measured on a virtual machine: 2.7 us for a page that a living child shares, where a fresh one took 2.0",
)
PRICE_OF_PAGES = Threshold(
    1.0,
    "of the price, one standard error",
    "measured: 1.9 to 3.2 us for a page that was copied, and once 16, on the same virtual machine",
)
KEPT_PAGE = Threshold(
    0.45,
    "times a page of fresh memory",
    "measured likewise: 0.9 us where the child is gone, so that the page need not be copied",
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
QUEUED_S = Threshold(
    0.002,
    "seconds",
    "judgement: a small message waits for a round trip, of 0.1 to 0.5 ms in a data centre",
)
LOOPBACK_BYTES_PER_S = Threshold(1e9, "bytes/s", "measured: 1.2e9 between two gloo ranks on two busy cores")
UNFILLED_LINK = Threshold(
    0.25, "of what a link carries", "judgement: filled to less while ranks are in collectives, it is not waited for"
)

# --- metrics: numbers beside the account ----------------------------------------------------------------------------

SHORTEST_RATE_S = Threshold(0.2, "seconds", "judgement: rates over less say more of when was sampled than of the job")
WORKER_SAMPLES = Threshold(
    20, "samples", "judgement: fewer do not say how busy a worker is (standard error above 0.11)"
)
WORKER_LIFE_PARTS = Threshold(
    5, "parts of a worker's life", "judgement: one that is idle in a whole part serves another loader"
)
WORKER_SWITCHES = Threshold(2, "switches beyond polling", "judgement: a worker that wakes up no more often has no work")
SEEN_STACKS = Threshold(100, "stacks", "100 samples miss a call that takes 3 % of the time in 5 % of cases")
LINES_KNOWN = Threshold(
    1 / 8, "of a cause's time", "judgement: source lines that are known for less do not show where the cause is"
)
LONGER_PHASE = Threshold(0.05, "of a step", "judgement: by what a rank's phase takes longer; less is noise")
DRIVER_PER_DISPATCH = Threshold(
    0.5,
    "samples in the driver for one in torch's dispatcher",
    "launches take the driver 4 to 6 us (NVIDIA's forums) of the 20 us of an operator on a V100 (a guide of Nsight's)",
)
CLOCK_IN_WAITS = Threshold(
    0.1,
    "of a wait for the device",
    "recorded on a B200: a synchronize spins mostly in the driver and the clock; a tenth at the least",
)
KERNEL_PER_YIELD = Threshold(
    6.0,
    "samples missed in the kernel for one in sched_yield",
    "nine jobs on an H200 whose launch queue was full: 3.5 to 6 (driver 580, Linux 6.18)",
)
INTERPRETER_PER_LAUNCH = Threshold(
    0.5,
    "samples in the interpreter for one in dispatcher or driver",
    "jobs recorded on an H200 (Python 3.12, torch 2.11): 0.03 to 0.35 in forward passes and optimizers of 12; one of "
    "transformers' had more, in few samples",
)
HOST_WAITS = Threshold(
    0.05, "of the time", "judgement: a host that waits for its GPU for longer has given it enough to do"
)
UNKNOWN_LAUNCHING = Threshold(
    0.5,
    "of the launching time",
    "convention: how busy a GPU is with what a host launches that never waits for it is not known; the middle",
)
ALLOCATES = Threshold(
    0.01, "of the time", "a job in its steady state makes no call to the driver in 10 s (recorded on a B200)"
)
LAUNCHES_SEEN = Threshold(
    50, "samples in PyTorch's operators", "4 to 6 of 20 us of an operator are the driver's: 50 samples miss it in 1e-5"
)
USED_DEVICE = Threshold(
    0.02, "of the time", "judgement: a GPU that is busy for less does not train; the model is on the CPU then"
)
UNUSED_GPU = Threshold(0.02, "of the GPU's memory", "judgement: the driver itself keeps some 0.5 GB")
FULL_GPU = Threshold(0.9, "of the GPU's memory", "judgement: with less in use the allocator need not give any back")
USUAL_KERNEL_TIME = Threshold(
    0.05, "of the running time", "judgement: page faults and samples that are lost; a host that spins has no other"
)
UTILIZATION_WINDOW_S = Threshold(0.5, "seconds", "NVML: utilization is a mean over the last 1/6 to 1 s, by product")
SM_AT_WORK = Threshold(
    0.85, "of the busy time", "labelled H100 jobs: 0.88 where compute-bound; DCGM's guide asks for 0.8"
)
SM_IN_SMALL_KERNELS = Threshold(
    0.6,
    "of the busy time",
    "19 jobs on an H200, by their traces: multiprocessors active in at least 0.6 of the time in which kernels run",
)
FRONT_END_PER_LAUNCHING = Threshold(
    0.1,
    "of the time of launching",
    "an H200's driver counts 1.5 to 1.9 us after each kernel that the GPU idles after; a launch takes 5 to 20 us",
)
SM_IN_COLLECTIVE = Threshold(0.15, "of the busy time", "8 H100s in NCCL's kernels: multiprocessors 10 to 20 % active")
POWER_AT_WORK = Threshold(
    0.85,
    "of the power limit",
    "labelled H100 jobs: 689 of 700 W where compute-bound, 547 with small kernels, neither waits",
)
POWER_IN_COLLECTIVE = Threshold(0.22, "of the power limit", "NVIDIA/nccl issue 1550: 152 of 700 W while it waits")
POWER_OF_KERNELS = Threshold(
    0.4, "of the power limit", "labelled H100 job with small kernels and much waiting: 418 of 700 W; NCCL alone 152"
)
POWER_IDLE = Threshold(0.18, "of the power limit", "labelled jobs with a context: H100 120 of 700 W, A100 85 of 400 W")
UNFILLED_NVLINK_BYTES_PER_S = Threshold(
    15e9, "bytes/s", "5 % of the 300 GB/s that an A100's links carry one way; a tenth of an H100's bus bandwidth is 35"
)
FAST_NVLINK_BYTES_PER_S = Threshold(300e9, "bytes/s", "what the links of an A100 carry one way; an H100's do 450")
SLOW_NVLINK_BYTES_PER_S = Threshold(
    75e9,
    "bytes/s",
    "judgement: a quarter of the 300 GB/s of an A100; large messages take more, small ones are asked for",
)
NO_EXCHANGE = Threshold(
    1e-3, "of the time, on slow links", "labelled H100s: 0 where no rank exchanges anything, 0.02 of DDP at the least"
)
SMALL_KERNELS = Threshold(
    0.1, "of the busy time", "judgement: so much that no exchange explains is no error of the readings"
)
SLOW_EXCHANGE_BYTES_PER_S = Threshold(
    1e9, "bytes/s", "judgement: Ethernet of 10 Gbit/s is the slowest link between nodes with GPUs"
)
ASKS_FOR_EXCHANGE = Threshold(
    0.05, "of the time", "judgement: a host that calls collectives for so long calls many; one takes it some 50 us"
)
UNEVEN_COLLECTIVES = Threshold(0.05, "of the time", "judgement: ranks that wait so much longer than another are early")
GPU_LIMITED_NOW_AND_THEN = Threshold(0.1, "of the readings", "judgement: less often costs nearly nothing")
CAPPED_POWER = Threshold(0.95, "of the default limit", "judgement: limits are set in coarser steps than this")
USUAL_CLOCK_READINGS = Threshold(4, "readings", "judgement: some seconds in which nothing holds the clock down")
CLOCK_UNDER_LOAD = Threshold(
    0.93, "of the highest clock", "an RTX 3090 under its power cap runs 3 to 11 % below its highest clock"
)
PCIE_IDLE_BYTES_PER_S = Threshold(50e6, "bytes/s", "H100 with GPM: 17 to 22 MB/s each way while nothing is copied")
PAGEABLE_BYTES_PER_S = Threshold(3e9, "bytes/s", "judgement: the slowest that copies from pageable memory are seen at")
GPU_UNIT_HIGH = Threshold(
    0.70, "of what it reaches at work", "XProf calls 70 % of memory bandwidth high (openxla/xprof, smart_suggestion)"
)
GPU_UNIT_MEDIUM = Threshold(
    0.5,
    "of what it reaches at work",
    "XProf calls less than 50 % of memory bandwidth low (smart_suggestion)",
)
MOST_WORKING_UNIT = Threshold(
    1.25,
    "times the next unit's work",
    "judgement: of units that work alike, neither is the limit",
)
MEMORY_AT_WORK = Threshold(0.8, "of the busy time", "DCGM's guide: memory is active for 80 % at most in practice")
TENSOR_CORES_AT_WORK = Threshold(0.58, "of the busy time", "labelled H100 job that is compute-bound")
TENSOR_CORES_UNUSED = Threshold(0.02, "of the busy time", "judgement: cores that work less are as good as unused")
SINGLE_PRECISION = Threshold(
    0.2, "of the busy time", "judgement: with less in single precision, tensor cores could take little over"
)
SINGLE_PRECISION_AT_WORK = Threshold(
    0.75,
    "of the time of matrix products",
    "measured on an H200: these units are active for 0.71 of the time where such products take 0.94 of it",
)

# --- traces: profiler traces and tables of operations ---------------------------------------------------------------

LEAST_WITH_TENSOR_CORES = Threshold(
    2.0, "times as fast", "judgement: large matrix products, which wait for memory then, are at least twice as fast"
)
PLAUSIBLE_SPAN_US = Threshold(86_400e6, "us from most events", "judgement: one wrong time must not stretch the trace")
QUEUED_BEFORE_NS = Threshold(1_000_000, "ns to start", "judgement: an empty device starts a kernel in some 10 us")
DISPATCH_PAUSE_NS = Threshold(
    1_000_000, "ns between operators", "measured: 10 us in the interpreter, 100 with stacks; tenfold is no dispatch"
)
SET_UP_CALL_NS = Threshold(
    1_000_000, "ns", "judgement: calls take us; one this long on an idle device loads code or tries algorithms"
)
SET_UP_BESIDE_ALLOCATING = Threshold(
    0.2, "of allocating", "measured: 0.4 and more at the start of six public jobs, below 0.04 where memory is full"
)
READS_AT_ONCE_NS = Threshold(
    100_000,
    "ns",
    "measured: on the CPU a number is read in 1 us; 100 us are no dispatch, but a device that is waited for",
)
RECORDED_CALLS = Threshold(
    0.02, "of all numbers given to calls", "measured: 0.06 to 1 in 60 public traces, 0.005 where events are a sample"
)
LAUNCHING_PAUSE_NS = Threshold(
    1_000_000,
    "ns",
    "measured: in 8 launch-bound public traces a launch comes within 1 ms, mostly within 0.3",
)
LONG_OPERATOR_NS = Threshold(
    100_000, "ns", "judgement: a tenth of a pause in launching; views and dispatch take 1 to 50 us, with a profiler too"
)
LAUNCH_LATENCY_NS = Threshold(5_000, "ns", "measured: call to start on an empty device: 4 to 10 us, Volta to Blackwell")
MOST_LAUNCH_LATENCY_NS = Threshold(20_000, "ns", "judgement: twice the longest of the same")
KERNEL_SWITCH_NS = Threshold(20_000, "ns", "judgement: from one queued kernel to the next; a longer pause has a reason")
SLOW_SWITCH_NS = Threshold(
    200_000, "ns", "measured: 26 to 200 us between queued kernels of a stream where rocprofiler records, on an MI300X"
)
OPERATOR_DISPATCH_NS = Threshold(5_000, "ns", "measured: ATen needs 1 to 5 us for an operator on one element")
RANGE_RECORDING_NS = Threshold(
    1_000, "ns", "measured: torch.profiler takes 0.7 to 1.2 us per range (server of 2024), twice that with stacks"
)
PAUSES_FOR_RECORDING = Threshold(
    50, "pauses of a sort", "judgement: of fewer the shortest tell little of what recording takes"
)
RECORDING_PAUSE = Threshold(
    0.25,
    "quantile",
    "measured: by it 0.58 to 0.81 of what four host-bound jobs on an H200 lost to the profiler is found",
)
MOST_RECORDING_BETWEEN = Threshold(
    0.9, "of a pause between two recorded moments", "judgement: something of the job's own is done in each"
)
PROFILER_LENGTHENS = Threshold(
    0.01, "of the traced time", "judgement: a profiler that makes a job longer by less changes no account"
)
MOST_RECORDING = Threshold(0.5, "of a fetch", "judgement: more of it is never taken off as the profiler's own time")
ALIKE_COLLECTIVES = Threshold(5, "collectives", "judgement: of fewer of a kind, the fastest may have waited as well")
FASTEST_COLLECTIVES = Threshold(0.10, "quantile", "judgement: what the fastest of a kind take is transfer")
MOST_COLLECTIVES = Threshold(0.75, "quantile", "judgement: most of a kind")
ONE_COLLECTIVE_SIZE = Threshold(2.0, "times the fastest", "judgement: if most take longer, they carry different sizes")
SHORT_COLLECTIVE_NS = Threshold(250_000, "ns", "DistributedDataParallel's default bucket of 25 MB at 100 GB/s")
SMALL_COLLECTIVE_BYTES = Threshold(1 << 20, "bytes", "judgement: less takes its time for latency on any link")
HELPER_DEVICE = Threshold(0.01, "of the busiest device's work", "judgement: a device with less only helps out")
SMALL_GRID = Threshold(0.5, "blocks per multiprocessor", "judgement: half of the multiprocessors have no block")
SHORT_KERNEL_NS = Threshold(10_000, "ns", "judgement: a shorter kernel is mostly starting and ending")
REPEATED_KERNELS = Threshold(3, "kernels", "judgement: of fewer, the median may be an outlier")
COMPARABLE_WORK = Threshold(3, "pieces of a sort", "judgement: of fewer there is nothing to draw from")
ONE_KERNEL_SIZE = Threshold(1.25, "times between quartiles", "judgement: work that differs more is of several sizes")
LENGTHENED = Threshold(1.05, "times", "judgement: GPUs' clocks change by some percent")
MOSTLY_LENGTHENED = Threshold(0.5, "of the compared time", "judgement: one kind may hide two sizes, most kinds do not")
CHANCE = Threshold(0.05, "of the draws", "judgement: the usual level of significance")
RUNS_ALONE = Threshold(0.05, "of a piece's time", "judgement: up to this part beside something counts as alone")
RUNS_BESIDE = Threshold(0.5, "of a piece's time", "judgement: from this part on it counts as beside something")
COMPARED_WORK = Threshold(0.5, "of the time beside collectives", "judgement: of less, nothing means nothing")
REPORTED_PART = Threshold(0.01, "of the kernels' time", "judgement: less of something is no evidence of anything")
UNCOMPARED_WORK = Threshold(0.5, "of the countable time", "judgement: without more, the rest says little")
WARMING_UP = Threshold(0.20, "of the time", "measured: steady steps have next to no first-time work; a job's start has")
SHORTEST_TRACE_NS = Threshold(1_000_000, "ns", "judgement: less is no step of a training job")
LAST_OF_COLLECTIVE_NS = Threshold(10_000, "ns", "judgement: what fills these at the end holds up the next")
COLLECTIVE_END_NS = Threshold(50_000, "ns", "measured: ends of one collective lie up to some 10 us apart on one host")
CLOCK_ERRORS = Threshold(3.0, "standard deviations", "judgement: the usual three; a larger difference is no error")
UNSURE_CLOCK_NS = Threshold(500_000, "ns", "judgement: ends that scatter by more are not those of one collective")
FARTHEST_SHIFT = Threshold(200, "collectives", "judgement: ranks begin to record within some steps of each other")
EXPLAINED_WAIT = Threshold(0.8, "of what others wait", "TraceML, Ascend's advisor: a culprit's excess explains so much")
SMALLEST_CHARGE = Threshold(0.005, "of waiting for a rank", "judgement: of what is passed on, less names nobody")
ALIKE_RANKS = Threshold(0.1, "of the time", "judgement: who spends nine tenths of the time alike is of one kind")
MATTERS_TO_ALL = Threshold(0.005, "of all ranks' time", "judgement: waiting for a rank that costs less is noise")
UNMATCHED_COLLECTIVES = Threshold(0.2, "of exposed communication", "judgement: more of it on one rank is worth a note")
UNEVEN_WINDOWS = Threshold(1.5, "times the shortest", "judgement: windows that differ more hold different steps")
FEWEST_STEPS = Threshold(3, "steps", "the tutorial of torch.profiler records 3 (active=3): so many if none is marked")
CRITIC_TURNS = Threshold(
    20, "steps of one optimizer for one of another", "judgement: WGAN's critic has 5; more are no turns of one loop"
)
OPERATION_OVERLAP_S = Threshold(200e-6, "s", "measured: clocks let operations overlap by up to 0.1 ms")
ALWAYS_AFTER = Threshold(0.95, "of the steps", "judgement: one step in another order does not make two independent")
USUAL_OPERATIONS = Threshold(0.5, "of the steps", "judgement: an operation that fewer have is an accident")
STRAGGLING = Threshold(1.1, "times the step of equal ranks", '"Understanding Stragglers …" (OSDI 2025)')
EXPLAINED_LOSS = Threshold(0.8, "of what is lost", "judgement: equal ranks win back so much for one culprit")

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
NEARLY_WHOLE_LOOP = Threshold(0.8, "of a loop's time", "judgement: to do without the rest of it would bring little")
MOSTLY = Threshold(0.5, "of a whole", "definition: more than all the rest together")

# Which cause comes first.
MIN_SHARE = Threshold(
    0.10,
    "fraction of wall time",
    "TraceML's policy warns from here; 15 s at 50 Hz tell it from 0 with certainty (standard error 0.011)",
)
MIN_PYTHON_OVERHEAD = Threshold(
    0.22, "fraction of wall time", "judgement: every job that trains on the CPU has some; more than sound examples"
)
MIN_ORDINARY_OVERHEAD = Threshold(
    0.3, "fraction of wall time", "measured: up to 0.25 in sound jobs of small models that strangers wrote"
)
MIN_CONTENTION = Threshold(
    0.15, "fraction of wall time", "judgement: every job that trains on the CPU has some; more than sound examples"
)
MIN_EVALUATION = Threshold(
    0.15,
    "fraction of wall time",
    "judgement: one pass over a tenth of the data per epoch takes 3 to 4 %; with several times as much it stands out",
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
MIN_UNEQUAL = Threshold(
    0.15,
    "fraction of all ranks' time",
    "measured: alike ranks wait for each other's arithmetic in 0.09, with sequences of other lengths in 0.18 and more",
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
    0.75,
    "of the share of a cause of the host",
    "measured: 0.68 and 0.76 of what launching seems to take in two traces, less the estimate, is there without one",
)
MAX_UNATTRIBUTED = Threshold(
    0.5, "fraction of wall time", "judgement: where most is unknown, nothing is named that costs less than the unknown"
)
HARDLY_DONE = Threshold(
    0.2, "of a rank's time at a line", "judgement: stacks are read now and then one line too late, and samples are few"
)
SURE_STRAGGLER = Threshold(
    0.9,
    "of the draws",
    "judgement: as usual for a one-sided test; ranks alike in 10 s come to 0.8 of the waits by chance",
)
STRAGGLER = Threshold(0.8, "fraction of all waiting for ranks", "what TraceML and Ascend's advisor ask of a culprit")
CONFIDENCE_OUTSIDE = Threshold(
    0.95, "probability", "judgement: sampling from outside sees states and stacks at different instants"
)
CONFIDENCE_WITHOUT_CODE = Threshold(
    0.5,
    "probability",
    "judgement: of jobs that train on a CPU up to nine tenths were calls that looked like arithmetic",
)
CONFIDENCE_GPU_OUTSIDE = Threshold(
    0.6, "probability", "what a job on such a GPU looks like from outside was built from published facts, never tried"
)
CONFIDENCE_GPU_TRIED = Threshold(
    0.7, "probability", "of 19 jobs on an H200, the first ones on a real GPU, 14 verdicts were right at first sight"
)
CONFIDENCE_GPU_UNREAD = Threshold(
    0.45,
    "probability",
    "simulated: where nobody says how busy a GPU is, 11 of 24 verdicts that name its own work or launching are right; "
    "of 17 about anything else that its host does, 16",
)
CONFIDENCE_INSIDE = Threshold(
    0.98, "probability", "judgement: phases and steps are exact, but what a thread waits for is still sampled"
)
CONFIDENCE_TRACED = Threshold(0.98, "probability", "judgement: tracing slows the host down")
CONFIDENCE_UNSEEN_CODE = Threshold(
    0.6, "probability", "judgement: that the host is outside of PyTorch is sure, what it does there is not seen"
)
CONFIDENCE_DOUBTED = Threshold(0.5, "probability", "judgement: a trial that contradicts weighs as much as the samples")
TRIAL_AGREES = Threshold(
    0.4,
    "of the verdict's share",
    "measured: median error of a share over the examples 0.08; a trial takes some steps only, at another time. It may "
    "save more, since without the input's work the cores are less busy",
)

# Whether there can be a verdict, and what is reported beside it.
FEWEST_SAMPLES = Threshold(25, "samples", "judgement: half a second at 50 Hz; fewer are no base for shares")
STILL_S = Threshold(
    5.0, "seconds", "judgement: in less, a step may wait for a slow answer; `--duration` has 15 s by default"
)
STILL = Threshold(0.8, "of the time watched", "judgement: a job that moved later may step slowly, and is watched again")
MOVING_CPU = Threshold(
    0.02, "cores", "measured: threads of gloo, of the store and of progress bars use up to 0.003 while all ranks wait"
)
MOVING_BYTES_PER_S = Threshold(
    4096.0, "bytes per second", "judgement: heartbeats and log lines are less, the slowest data is more"
)
MOVING_MEMORY = Threshold(1 << 20, "bytes", "judgement: a loop that collects results needs more in some seconds")
BUSY_IN_HANG = Threshold(
    0.95, "of the time", "NVML: a collective that waits is a kernel that runs; a mean may be a bit off"
)
POWER_IN_HANG = Threshold(
    0.25,
    "of the power limit",
    "NVIDIA/nccl issue 1550: 152 of 700 W in a collective that waits; decoding bound by latency draws 188 W and more",
)
STILL_LINK = Threshold(5e7, "bytes per second", "GPM of an H100 reads 17 to 22 MB/s of PCIe where nothing is copied")
SHORT_SLEEP_S = Threshold(
    60.0, "seconds", "judgement: a loop that waits before it tries again waits less; it is no hang before it has ended"
)
POLLS = Threshold(
    10.0, "wake-ups", "judgement: who has looked so often at one place in vain waits for what never comes"
)
DUMP_LATE = Threshold(
    2.0,
    "of the timeout",
    "judgement: no job waits for so long; the file was copied since, and its time is not the dump's",
)
DUMP_OPEN_S = Threshold(
    60.0,
    "seconds",
    "judgement: for which a collective is open in dumps that nobody's timeout has caused; steps are less",
)
POLLING_ASLEEP = Threshold(
    0.8, "of its samples", "judgement: in at most one of five a thread that only looks is at work"
)
SAME_PLACE = Threshold(0.95, "of the stacks", "measured: of stacks that change while py-spy reads them up to 3 % fail")
LOOPS_IN_PYTHON = Threshold(
    0.8, "of the code samples", "judgement: with less it calls libraries: a long call ends, and torch's calls are steps"
)
CONFIDENCE_ENDLESS = Threshold(0.95, "probability", "judgement: what holds the job up cannot end by itself")
CONFIDENCE_NO_END_SEEN = Threshold(
    0.8, "probability", "judgement: nobody was seen who could end it, but whom it waits for is not seen wholly"
)
CONFIDENCE_MAY_END = Threshold(0.5, "probability", "judgement: it may go on by itself; seconds do not tell")
TIME_BETWEEN_STEPS = Threshold(
    0.1,
    "of the observed time",
    "judgement: some passes between any two epochs; with more, steps alone do not tell the pace",
)

# Python in the trainer.
OPTIMIZER_SHARE = Threshold(
    0.15, "of the wall time", "catalogued cases: an optimizer worth a change of its own takes 15 to 20 %"
)
STEPS_OF_CONVOLUTION = Threshold(
    0.3,
    "of the samples in FFTs",
    "measured: 0.23 to 0.37 of 13 lengths with a large prime factor, and 0 of seven others",
)
OF_TABLES = Threshold(
    0.3,
    "of the wall time",
    "judgement: between a job with large tables (0.59) and one with small ones (0.29), which sparse gradients slowed",
)
LIKE_UPDATES = Threshold(
    1.2,
    "times the optimizer's step",
    "measured: an average of the weights takes half as long as the step of SGD or Adam, with a queue of features 0.8",
)
ONLY_COLLECTS = Threshold(
    0.9, "of the time at a line", "judgement: samples beside a call of gc.collect() fall on its line now and then"
)
TRACED_LINES = Threshold(
    6.0,
    "lines of libraries that call a function",
    "judgement: of 115 jobs none called others at more than three; trace functions were called at 6 to 51",
)
TRACED_FILES = Threshold(3.0, "files that these lines are in", "judgement: as for TRACED_LINES")
FORMATTING_TRACEBACKS = Threshold(
    0.05, "of the overhead", "judgement: code that formats tracebacks so often formats them all the time"
)
NAMED_FUNCTION = Threshold(
    0.25, "of the time in the job's own Python", "judgement: a function with less of it does not stand out"
)
NAMED_LOOP = Threshold(0.1, "of the overhead", "judgement: a loop with less of it is not worth a change of code")
TORCH_BESIDE_PYTHON = Threshold(
    0.4, "of the overhead", "judgement: with so much under torch's own frames, fewer operations help as well"
)

# CPU cores.
NEIGHBOUR_CORES = Threshold(
    0.25, "cores", "judgement: with less, the job's own threads and not its neighbours are the reason"
)
CROWDED_CORES = Threshold(
    1.1, "runnable threads per core", "judgement: from here on the job alone has more threads than cores"
)
OVERRULED_THREADS = Threshold(
    1.5,
    "running threads per thread that OMP_NUM_THREADS allows",
    "measured: 1.2 where ranks of one thread each also serve an exchange; with more, code sets their number",
)
SINGLE_THREADED = Threshold(
    1.1, "times as long as its main thread", "judgement: a trainer whose threads run no longer has no pool at work"
)
FEWER_THREADS_GAIN = Threshold(
    1.2, "times as fast", "judgement: beside neighbours, fewer threads are worth a try from this gain on"
)
IDLE_WORKERS_USE = Threshold(0.25, "cores", "judgement: workers that use less together take no core from anybody")
FULL_CORES = Threshold(
    0.85, "of the job's cores", "judgement: a job that fills so much of them needs no neighbour to lack a core"
)
POOL_AT_WORK = Threshold(
    0.75, "of the threads that compute", "judgement: of a pool that is used less, more threads would idle as well"
)
IDLE_CORES = Threshold(0.5, "cores", "judgement: with less, more threads for the arithmetic find no free core")

ONE_STRETCH = Threshold(0.5, "of the time watched", "judgement: what lasts for longer may well go on all the time")
OF_ONE_STRETCH = Threshold(0.9, "of a cause's time", "judgement: the rest is single samples that look like it")
DENSE_STRETCH = Threshold(0.1, "of a stretch's mean", "judgement: a second with less of it ends a stretch")

# GPUs.
SLOWER_GPU = Threshold(1.1, "times as long", "judgement: GPUs of one model differ by a few percent")
ROOM_FOR_BATCH = Threshold(
    0.5, "of the GPU's memory", "judgement: with more in use, merging kernels comes before a larger batch"
)
TRACES_MEMORY = Threshold(
    0.002,
    "of the samples",
    "judgement: 0.015 with tracemalloc in a job of few objects; it runs for nobody else",
)
FILLING = Threshold(
    0.03,
    "of the samples",
    "measured: 0.13 to 0.66 in four jobs that it held back, 0.04 in two others, at most 0.02 in the rest of 130",
)
UNFOLDING = Threshold(
    0.02,
    "of what is in double precision",
    "4 to 16 % in four models with convolutions, none in four without (measured)",
)
FULL_MEMORY = Threshold(0.8, "of the memory", "judgement: with more in use, keeping all activations is not worth a try")

COMPILATIONS_OF_A_STEP = Threshold(
    2.0, "compilations after a part has run", "torch.compile: the backward pass when it first runs, then the optimizer"
)

# What is shown as evidence.
SHOWN_CORES = Threshold(0.01, "cores", "the kernel counts in ticks of 10 ms, so it is one in a second")
SHOWN_FRACTION = Threshold(0.005, "of the time or the samples", "judgement: less is a sample or two in some hundred")
SHOWN_PART = Threshold(0.01, "of a cause", "judgement: a line with less of it is not where most of it is")

# Exchange between ranks.
WITHIN_HOST = Threshold(0.9, "of all bytes", "judgement: ranks that send so much over the loopback share one host")

IDLE_FABRIC = Threshold(
    0.1, "of what other interfaces receive", "judgement: NCCL over InfiniBand leaves next to nothing to TCP"
)

# Loader workers.
LITTLE_SHARED_MEMORY = Threshold(
    1000.0,
    "MB",
    "judgement: containers have 64 MB unless they ask for more (docker run's --shm-size), which is some batches",
)
WORTHWHILE_LEFT = Threshold(
    0.95, "of the wall time that is left", "judgement: a smaller gain drowns in a job's own scatter"
)
WORKERS_PER_CORE = Threshold(
    4, "workers", "judgement: those that wait for storage can share a core, but each is a process with its own memory"
)
LEAST_OWN_TIME = Threshold(
    0.01, "of the wall time", "judgement: with less time of the trainer's own, the need for workers has no end"
)
HANDED_OVER = Threshold(
    1.15,
    "times as long",
    "measured: batches took 1.08 to 1.3 times as long in a worker, which hands them over, as in the trainer itself",
)
LOST_BESIDE = Threshold(
    0.25,
    "of the time in which trainer and workers both compute",
    "measured on two cores: of the steps of ten jobs, each with its first one or two workers, -0.03 to 0.18 more was "
    "left than by their own work and the batches', 0.10 in the mean",
)
POOL_THREAD = Threshold(
    0.25, "of the trainer's own time", "judgement: a thread that is busy for less is no thread of the arithmetic"
)
POOL_SCALING = Threshold(
    0.5,
    "exponent of the number of threads",
    "measured: with two threads instead of one, ten models' steps were 1.0 to 1.84 times as fast, 1.35 in the mean; of "
    "that four fifths are arithmetic, and 2 to this power is 1.41",
)
BUSY_WORKER = Threshold(0.8, "of the time", "judgement: a worker that all others wait for has hardly a pause")
ONE_AT_A_TIME = Threshold(
    1.5, "helpers at work", "judgement: asked one after the other it is one, seldom two while one wakes another (1.1)"
)
SECONDS_PER_COPY = Threshold(
    20e-6, "s/call", "measured: what a call on a pipe or a Unix socket takes, and waking whoever waits at the other end"
)
COPIED_BYTES_PER_S = Threshold(1e9, "B/s", "measured: pipes and Unix sockets carry 1 to 3 GB/s")
HARDLY_COPIES = Threshold(
    0.25, "of the CPU time", "judgement: of four instants in which it runs, less than one is then in such a call"
)
UNEVEN_WORKERS = Threshold(
    2.0, "times as busy as the next worker", "judgement: what differs by less is the scatter of the samples"
)
LOADER_SAMPLES = Threshold(10, "samples", "judgement: of fewer, a first batch or none is chance")
SLACK_OF_WORKERS = Threshold(
    0.20, "of the time", "measured: workers 0.79 idle where the trainer was slow, next to never where they were"
)
DECODING = Threshold(
    0.05, "of the preparation", "judgement: with less of it spent in a decoder, decoding is not worth a word"
)

# Reading.
FULL_DEVICE = Threshold(
    0.85,
    "of the time",
    "judgement: further readers then find the device taken (%util in iostat); devices with many queues may have room",
)
LIMIT_REACHED = Threshold(
    0.8, "of the limit", "measured: 0.97 to 1.0 of what the job waited for; what comes in bursts uses less of it"
)
HELD_BACK = Threshold(
    0.25, "of the time waited", "measured: a device was busy for 0.05 of that behind a limit, and for 0.9 without one"
)
READ_CALL_S = Threshold(4e-7, "seconds", "measured: a read call of one byte from a pipe, by Python (AMD EPYC)")
UNBUFFERED_READ = Threshold(512, "bytes", "judgement: Python's own buffers ask for 8 kB and more at a time")
SMALL_READ = Threshold(
    64 * 1024, "bytes", "the usual read-ahead window starts here; below it requests cost more than bytes"
)
MAPPED_FAULTS = Threshold(
    50.0, "major faults/s", "measured: 22 with read-ahead brought 149 MB/s of a mapped file, 1465 without it"
)
PAGE_CACHE_HITS = Threshold(0.5, "of the bytes read", "judgement: with more hits, memory serves most reads already")
COUNTED_APART = Threshold(
    0.05,
    "of the bytes read",
    "measured: where all of it had been in memory before, two of the kernel's counters were 0.014 apart",
)
READ_AGAIN = Threshold(
    0.1, "of the bytes read", "judgement: less of it dropped from the page cache just before is not worth a word"
)

# Health of host, GPUs and fabric.
DEGRADED_LINK = Threshold(
    0.75,
    "of the bandwidth",
    "PCIe: width and generation go in steps of two, so that whoever lost one has half or less; so do lanes and speeds "
    "of InfiniBand, as a rule",
)
LINK_ERRORS_PER_S = Threshold(0.05, "errors/s", "kempnerpulse warns of any replay: this is one in 15 s of watching")
NVLINKS_DOWN = Threshold(0.01, "of the links", "judgement: any that another GPU of the job has up")
FAR_FROM_GPU = Threshold(0.5, "of the time", "judgement: for more of it, the far node is where the thread belongs")
CLOCK_BELOW_NOMINAL = Threshold(
    0.1,
    "of the clock",
    "judgement: vendors promise the nominal clock with all cores busy; wide vectors cost some of it",
)
HEAT_LIMITED = Threshold(0.05, "of the time", "judgement: shorter costs nearly nothing")
STOLEN = Threshold(0.05, "of the CPU time", "judgement: less is a hypervisor's own work")
MEMORY_STALLED = Threshold(
    0.05, "of the time", "judgement: stalls of some task that are shorter cost the job less still"
)
LIMIT_HITS_PER_S = Threshold(
    10.0, "hits/s", "judgement: a group that reads files runs into its limit now and then, and gives page cache back"
)
MUCH_READ_AGAIN = Threshold(
    0.25,
    "of the bytes read",
    "judgement: with so much in memory shortly before, the limit and not the storage is to blame",
)
COMPACTIONS_PER_S = Threshold(10.0, "stalls/s", "judgement: a stall takes some ms at most; fewer do not add up")

# --- several hosts: how their clocks stand to each other --------------------------------------------------------------

WATCHED_TOGETHER_S = Threshold(2.0, "seconds", "judgement: less than that of a job on several hosts says little")
FEWEST_MEETINGS = Threshold(8, "collectives", "judgement: fewer fit each other at many offsets")
CLOCKS_APART_S = Threshold(10.0, "seconds", "judgement: clocks that are farther apart are not kept by anything")
CLOCK_FIT = Threshold(
    6.0,
    "standard deviations",
    "simulated: of 936 pairs of hosts none was put on a wrong offset; 338 were",
)
CLOCK_FITS_ALONE = Threshold(
    1.3,
    "times the next best fit",
    "simulated: steps that are all alike fit each other at every step's length nearly as well",
)

# --- treatments: fixes that are tried ---------------------------------------------------------------------------------

TRIAL_CONFIDENCE = Threshold(
    0.97,
    "probability",
    "simulated: four tests, one after the other, call 2 to 4 % of changes without effect faster, at any noise",
)
WORTH_A_CHANGE = Threshold(1.02, "speed-up", "judgement: less is not worth a change of the script")
NO_DIFFERENCE = Threshold(1.03, "speed-up", "judgement: an interval within it either way has no room for more")
WORTH_THE_HEADLINE = Threshold(
    0.20, "of the wall time", "XProf and TraceML call as much of a cause high; a sound job is told so in its first line"
)
WORTH_OF_PRICED = Threshold(
    0.75, "of its gain", "judgement: what gives something up has to bring a third more to be tried first"
)
WORTH_A_TRIAL = Threshold(0.05, "of the wall time", "judgement: all of it would be a gain that takes many runs to see")
ARITHMETIC_COUNTS = Threshold(
    0.1, "of its share", "judgement: the model's own arithmetic is needed; what may make it cheaper is tried last"
)
FEWEST_TRIAL_STEPS = Threshold(3, "steps", "judgement: fewer say nothing of a pace")
TRIAL_S = Threshold(6, "seconds", "judgement: of steps in each run, where starting takes no longer than that")
SHORTEST_TRIAL_S = Threshold(3, "seconds", "judgement: the same, where the budget is small")
LONGEST_TRIAL_S = Threshold(30, "seconds", "judgement: of steps in each run, however long starting takes")
TRIAL_STEPS = Threshold(10, "steps", "judgement: the fewest that are measured in each run, however long one takes")
SHORTEST_BLOCK_S = Threshold(1, "seconds", "judgement: of steps in each block from inside, where the budget is small")
SWITCHING_STEPS = Threshold(3, "steps", "judgement: after a switch; threads start and kernels are chosen in the first")
MUCH_SLOWER = Threshold(
    2.5, "times the control's time", "judgement: a run that takes longer for its steps need not be waited for"
)
HOPELESS = Threshold(0.85, "speed-up", "judgement: a change whose first run is that slow is not run again")
ROUNDS = Threshold(5, "runs", "simulated together with TRIAL_CONFIDENCE: most runs of one change in the search")
CONFIRMING_RUNS = Threshold(3, "runs", "judgement: of the best, and of as many controls, before it is called measured")
CONFIRMING_PART = Threshold(0.3, "of the budget", "judgement: what is kept for these runs at most")
LOSS_STRETCHES = Threshold(8, "stretches", "judgement: of losses whose means are compared")
LOSSES_OF_STRETCH = Threshold(5, "losses", "judgement: the fewest that make a mean")
LOSS_DEVIATIONS = Threshold(
    4.0, "standard errors", "two-sided probability below 0.001 for all stretches together, if losses were normal"
)
LOSS_ROUNDING = Threshold(
    1e-3, "of the loss", "judgement: what another order of additions in float32 grows to over some tens of steps"
)
WORKING_COPY_BYTES = Threshold(
    256 * 2**20, "bytes", "judgement: copied within about a second, which each run of the job takes anyway"
)
STAGED_PIECE = Threshold(
    0.05, "of the samples of waits for files", "judgement: a file or folder with less is copied as a part of its folder"
)
STAGED_TOGETHER = Threshold(
    0.8, "of the samples of waits for files", "judgement: where single files have less, their whole folder is copied"
)
STAGED_PART = Threshold(
    0.5, "of the free memory", "judgement: as much stays for the page cache, which holds the originals for the controls"
)
STAGING_PART = Threshold(0.1, "of the budget", "judgement: copying may take as long as one change in ten")
MEMORY_LEFT = Threshold(0.05, "of the machine's memory", "judgement: with less of it free the kernel begins to swap")
LATE_FIRST_STEP = Threshold(1.5, "times the control's", "judgement: a start that is so much longer is worth a word")

# --- two runs side by side --------------------------------------------------------------------------------------------

COMPARED_CONFIDENCE = Threshold(
    0.98,
    "probability",
    "simulated: of pairs of runs without a change, with steps that depend on each other, 0 to 3 % seem to differ",
)
NOISE_FLOOR = Threshold(
    0.02, "of the time per step", "nsys-ai's for single runs (0.3): what runs of the same job differ by anyway"
)
TELLING_FLOOR = Threshold(
    1.0,
    "of the time per step",
    "judgement: whoever cannot tell twice the pace from chance has not seen enough to answer",
)
TELLING_CHANGE = Threshold(
    0.5, "of the wall time", "judgement: in a wider interval of what a cause takes there is room for most bottlenecks"
)
BATCHES = Threshold(20, "batches of neighbouring blocks", "Schmeiser 1982: 10 to 30, more gain little and depend more")
REPORTED_CAUSE = Threshold(0.01, "of the wall time", "judgement: what costs less in both runs is not worth a line")
MUCH_LONGER = Threshold(3.0, "times as long", "judgement: a longer run sees rarer things, checkpoints for instance")
OTHER_NEIGHBOURS = Threshold(0.25, "cores", "judgement: less is what a quiet machine does beside any job")
SAME_COUNT = Threshold(
    0.2, "of the larger count", "judgement: threads come and go; a setting that is made changes more"
)

# --- monitor: a job for days -----------------------------------------------------------------------------------------

LONG_STEP_LEAST_S = Threshold(
    0.5, "seconds longer", "judgement: what happens every few minutes and takes less is small"
)
MUCH_LONGER_STEP = Threshold(
    2.0,
    "times an ordinary step longer",
    "judgement: batches of unequal length make a step twice as long, hardly thrice",
)
FALSE_ALARM = Threshold(
    1e-5, "probability for each test", "2,880 beats of 30 s in a day with three tests each: one in ten days"
)
CHANGED_PACE = Threshold(
    0.05,
    "of the time per step",
    "judgement: less is not worth being called; compare's noise floor is 0.02 for two runs",
)
CHANGED_BEAT = Threshold(0.2, "of the time per step", "judgement: one beat alone is only worth a word if it is far off")
CHANGED_SHARE = Threshold(
    0.15, "of the wall time", "judgement: what a window of 10 s says of a share varies by some hundredths"
)
CHANGED_WINDOW = Threshold(0.3, "of the wall time", "judgement: one window alone, as for a beat")
TREND = Threshold(
    0.7, "Kendall's tau of 24 batches", "z = 4.8 (Kendall 1975): by chance in one of a million series without a trend"
)
MEMORY_GROWN = Threshold(
    0.1, "of the job's memory", "judgement: caches and allocators grow by less once a job has settled"
)
CULPRIT = Threshold(
    0.3, "of what takes longer", "judgement: windows of 10 s vary; what explains less of a change is not what made it"
)
REGULAR_GAPS = Threshold(
    0.15,
    "of the median gap, as standard deviation",
    "judgement: gaps that come by chance vary by as much as their mean",
)
RECURRING_SHARE = Threshold(0.01, "of the wall time", "as REPORTED_CAUSE, for long steps that keep no rhythm")
SILENT_S = Threshold(120.0, "seconds", "judgement: evaluations and checkpoints of most jobs are over by then")
SILENT_STEPS = Threshold(20.0, "ordinary steps", "judgement: a step that takes longer is no step")
