"""Diagnoses made by hand, for the tests of reports. The numbers in each are consistent with one another."""

import math
from dataclasses import replace

from perfdoctor.diagnosis import (
    CauseShare,
    Diagnosis,
    Evidence,
    Finding,
    Fix,
    LookAlike,
    NotExamined,
    Series,
    Verdict,
    advise,
)
from perfdoctor.messages import say
from perfdoctor.results.activity import (
    GPU,
    TRAINER,
    WORKER,
    Activity,
    CodeNode,
    CodeTree,
    Excerpt,
    ExcerptLine,
    HotLine,
    Lane,
    LanePart,
    SourceView,
    StepPart,
    StepParts,
    StepTimes,
    Track,
)
from perfdoctor.results.stuck import Halt, Stuck

ATTACK = "</script><script>alert(1)</script>\"'><img src=http://evil.test/x onerror=alert(2)>"
TERMINAL_ATTACK = "\x1b[2J\x1b]0;owned\x07[bold red]red[/] [link=file:///etc/passwd]here[/link]\x9b31m\u202eback"
BROKEN = "data/\udcff\udc80.jpg\nsecond\r\nthird $\\frac{"

GPU_NOT_EXAMINED = NotExamined(
    "gpu", "The NVIDIA driver is not loaded on this host.", "Run perfdoctor on a host with an NVIDIA driver."
)


ADVICE = (
    "Keep the metrics of a hundred steps in a list, and write their mean with one call instead of a line for each of "
    "the steps, as is done now."
)


def wave(count: int, seconds: float, low: float, high: float, turns: float = 3.0) -> list[float]:
    """A smooth course between two values."""
    middle, swing = (low + high) / 2, (high - low) / 2
    return [middle + swing * math.sin(2 * math.pi * turns * i / count) for i in range(count)]


def times(count: int, seconds: float) -> tuple[float, ...]:
    """Evenly spaced instants."""
    return tuple(seconds * i / count for i in range(count))


def input_bound() -> Diagnosis:
    """A job on the CPU whose two workers cannot keep up with decoding images."""
    preprocessing = Finding(
        cause="cpu.input_preprocessing",
        share=0.62,
        severity="high",
        predicted_speedup=2.3,
        summary="The trainer waits 62% of its time for batches, and just then its workers decode images.",
        evidence=(
            Evidence("trainer waits for the loader's queue", 0.62, "of the time", "threads"),
            Evidence("workers on a CPU while the trainer waits", 0.97, "fraction", "threads"),
            Evidence("cores that nobody uses", 5.1, "cores", "processors"),
            Evidence("most frequent line of the workers", "dataset.py:41 __getitem__", "", "stacks"),
            Evidence("bytes read by the workers", 1_430_000.0, "bytes/s", "processes"),
        ),
        fixes=(
            Fix(
                "Raise the number of workers from 2 to 7",
                "Both workers are busy 97% of the time while 5 of 8 cores idle; 7 would keep up.",
                "loader = DataLoader(\n    dataset,\n    num_workers=7,  # was 2\n)",
            ),
            Fix(
                "Decode smaller images, or decode them once",
                "78% of the workers' time is spent in the JPEG decoder at full resolution.",
                "image.draft('RGB', (224, 224))  # before convert(): decodes at an eighth of the cost",
            ),
        ),
        refuted_by="The pace stays the same when the loader hands out one cached batch over and over.",
        look_alikes=(
            LookAlike("io.storage_read", 0.002, True, (Evidence("read from storage", 1.4, "MB/s", "io"),)),
            LookAlike("cpu.contention", 0.08, False),
            LookAlike("cpu.lock_contention", None, False),
        ),
    )
    logs = Finding(
        cause="io.log_write",
        share=0.04,
        severity="low",
        predicted_speedup=1.04,
        summary="Metrics are flushed to disk after every step.",
        evidence=(Evidence("time per flush", 0.0042, "s", "threads"),),
        fixes=(
            Fix("Flush rarely", "Each flush costs 4.2 ms of a 104 ms step.", "writer.flush_secs = 30"),
            Fix("Log less", "Most of it is never read.", ADVICE),
        ),
        refuted_by="The pace stays the same with logging switched off.",
    )
    return Diagnosis(
        version="0.1.0",
        verdict=Verdict(
            "cpu",
            "cpu.input_preprocessing",
            0.62,
            0.98,
            2.3,
            None,
            "sampled from outside",
            "The trainer waits for its two workers, which decode images all the time while five cores idle.",
        ),
        breakdown=(
            CauseShare("cpu.input_preprocessing", 0.62),
            CauseShare("cpu.model_compute", 0.27),
            CauseShare("io.log_write", 0.04),
            CauseShare("cpu.python_overhead", 0.033),
            CauseShare("cpu.garbage_collection", 0.004),
            CauseShare("cpu.contention", 0.003),
            CauseShare("unattributed", 0.03),
        ),
        findings=(preprocessing, logs),
        ranks=(
            {
                "rank": 0,
                "pid": 4242,
                "breakdown": [
                    {"cause": "cpu.input_preprocessing", "share": 0.62},
                    {"cause": "unattributed", "share": 0.38},
                ],
                "workers": 2,
            },
        ),
        steps={"count": 144, "median_s": 0.104, "samples_per_second": 307.7},
        not_examined=(GPU_NOT_EXAMINED,),
        overhead={"cpu_cores": 0.031, "memory_bytes": 48_300_000, "late_ticks": 2},
        job={
            "command": "python train.py --data /data/flowers --workers 2 --token=***",
            "pid": 4242,
            "host": "trainbox",
            "cores": 8,
            "python": "3.11.9",
            "torch": "2.13.0",
            "watched_s": 15.02,
        },
        series=input_bound_series(),
        activity=input_bound_activity(),
    )


def input_bound_activity() -> Activity:
    """What was seen of the input-bound job: its second worker came late, and one step was long."""
    bins = 60
    waits = tuple(0.4 + 0.4 * (place % 2) for place in range(bins))
    trainer = {"cpu.input_preprocessing": waits, "cpu.model_compute": tuple(1 - part for part in waits)}
    late = tuple(place >= 20 for place in range(bins))
    decode = CodeNode("Flowers.__getitem__", "/home/me/dataset.py", 41, {"cpu.input_preprocessing": 0.62})
    forward = CodeNode("Net.forward", "/home/me/train.py", 12, {"cpu.model_compute": 0.2, "cpu.python_overhead": 0.1})
    main = CodeNode("main", "/home/me/train.py", 31, {"cpu.input_preprocessing": 0.62, **forward.causes}, (forward,))
    busy, gpu = "cpu.input_preprocessing", Lane(GPU, "gpu:0", every_s=0.5)
    halves = (LanePart(busy, 0.0, 0.1, 0.75), LanePart("", 0.0, 0.1, 0.25, 0.75))
    usual_lanes = (Lane(WORKER, "", halves, 0.04, 212), gpu)
    slowest_lanes = (Lane(WORKER, "4250", (LanePart(busy, 0.0, 0.36), LanePart("", 0.36, 0.04)), 0.04), gpu)
    usual = StepParts(2, 0.1, (StepPart("data", 0.0, 0.06), StepPart("forward", 0.06, 0.04)), usual_lanes)
    slowest = StepParts(3, 0.4, (StepPart("data", 0.0, 0.36), StepPart("forward", 0.36, 0.04)), slowest_lanes)
    return Activity(
        watched_s=15.0,
        tracks=(
            Track(TRAINER, 0, 4242, 0.25, (True,) * bins, trainer),
            Track(WORKER, 0, 4250, 0.25, (True,) * bins, {"cpu.input_preprocessing": (0.97,) * bins}),
            Track(WORKER, 0, 4251, 0.25, late, {"cpu.input_preprocessing": tuple(0.5 * seen for seen in late)}),
        ),
        code=(
            CodeTree(TRAINER, 0, 4242, (main,)),
            CodeTree(WORKER, 0, 4250, (decode,)),
        ),
        lines=(HotLine("/home/me/dataset.py:41 Flowers.__getitem__", "cpu.input_preprocessing", 0.6),),
        source=input_bound_source(),
        steps=(StepTimes(0, (0.0, 0.1, 0.2), (0.1, 0.1, 0.4), 0.15, usual, slowest),),
    )


def input_bound_source() -> SourceView:
    """The lines of the dataset around the one that decodes."""
    texts = (
        "    def __getitem__(self, index):",
        "        path = self.paths[index]",
        "        image = Image.open(path)",
        '        image = image.convert("RGB")',
        "        return self.augment(image)",
    )
    shares = {41: 0.6, 42: 0.02}
    lines = tuple(
        ExcerptLine(number, text, shares.get(number, 0.0), "cpu.input_preprocessing" if number in shares else "")
        for number, text in enumerate(texts, start=38)
    )
    return SourceView((Excerpt("/home/me/dataset.py", "Flowers.__getitem__", False, lines),))


def hostile_activity(text: str) -> Activity:
    """The same of a job whose files, functions and phases have such names."""
    activity = input_bound_activity()
    node = CodeNode(text, text, 1, {"cpu.input_preprocessing": 1.0})
    lanes = (Lane(WORKER, text, (LanePart(text, 0.0, 0.1),), 0.01), Lane(GPU, text, (LanePart(text, 0.0, 0.1),)))
    parts = StepParts(1, 0.1, (StepPart(text, 0.0, 0.1),), lanes)
    return replace(
        activity,
        code=(CodeTree(TRAINER, 0, 4242, (node,)),),
        lines=(HotLine(text, "cpu.input_preprocessing", 0.6),),
        source=SourceView((Excerpt(text, text, True, (ExcerptLine(1, text[:400], 0.6, text),)),), ((text, text),)),
        steps=(replace(activity.steps[0], usual=parts, slowest=parts),),
    )


def input_bound_series() -> tuple[Series, ...]:
    """Charts of the input-bound job, one with a gap."""
    at = times(150, 15.0)
    trainer: list[float | None] = [*wave(150, 15.0, 0.2, 0.5)]
    trainer[60:75] = [None] * 15
    return (
        Series("Processor time", "trainer", "fraction", at, tuple(trainer)),
        Series("Processor time", "worker 4250", "fraction", at, tuple(wave(150, 15.0, 0.93, 1.0, 7))),
        Series("Processor time", "worker 4251", "fraction", at, tuple(wave(150, 15.0, 0.9, 0.99, 5))),
        Series("Memory of the job", "resident", "bytes", at, tuple(wave(150, 15.0, 1.9e9, 2.1e9, 0.25))),
        Series("Reads from storage", "nvme0n1", "bytes/s", at, tuple(wave(150, 15.0, 0.4e6, 2.6e6, 9))),
    )


def sound() -> Diagnosis:
    """A job on the CPU that spends its time on its own arithmetic."""
    base = input_bound()
    compute = Finding(
        cause="cpu.model_compute",
        share=0.94,
        severity="none",
        predicted_speedup=1.0,
        summary="The trainer computes forward and backward passes on all cores.",
        evidence=(Evidence("time inside the matrix library", 0.91, "fraction", "code"),),
        refuted_by="A smaller model is not faster.",
    )
    return replace(
        base,
        verdict=Verdict(
            "cpu", "cpu.model_compute", 0.94, 1.0, 1.0, None, "sampled from outside",
            "The model's own arithmetic fills the cores; the loader is always ahead of it.",
        ),
        breakdown=(
            CauseShare("cpu.model_compute", 0.94),
            CauseShare("cpu.input_preprocessing", 0.04),
            CauseShare("unattributed", 0.02),
        ),
        findings=(compute,),
    )  # fmt: skip


def straggler() -> Diagnosis:
    """Two ranks; rank 1 reads its data from slow storage and rank 0 waits for it."""
    reading = Finding(
        cause="io.storage_read",
        share=0.45,
        severity="high",
        predicted_speedup=1.8,
        summary="Rank 0 waits in the gradient sync while rank 1 is blocked in reads from its dataset.",
        evidence=(
            Evidence("rank 0 in a collective without rank 1", 0.44, "fraction", "threads"),
            Evidence("rank 1 blocked in read()", 0.46, "fraction", "threads"),
            Evidence("file waited on most", "/mnt/nfs/shards/part-0003.tar", "", "threads"),
        ),
        fixes=(
            Fix(
                "Copy rank 1's shards to local storage",
                "Its reads take 38 ms each; rank 0 reads the same amount from local disk in 2 ms.",
                "rsync -a /mnt/nfs/shards/ /local/shards/",
            ),
        ),
        refuted_by="Rank 1 stays as slow when it reads from local storage.",
        ranks=(1,),
    )
    shares = (
        (("io.storage_read", 0.44), ("cpu.model_compute", 0.51), ("unattributed", 0.05)),
        (("io.storage_read", 0.46), ("cpu.model_compute", 0.49), ("unattributed", 0.05)),
    )
    return replace(
        input_bound(),
        verdict=Verdict(
            "io", "io.storage_read", 0.45, 0.87, 1.8, 1, "measured inside",
            "Rank 1 is blocked in reads from a network mount; rank 0 waits for it in every gradient sync.",
        ),
        breakdown=(
            CauseShare("cpu.model_compute", 0.50),
            CauseShare("io.storage_read", 0.45),
            CauseShare("unattributed", 0.05),
        ),
        findings=(reading,),
        ranks=tuple(
            {
                "rank": rank,
                "pid": 100 + rank,
                "breakdown": [{"cause": cause, "share": share} for cause, share in of_rank],
                "workers": 1 - rank,
            }
            for rank, of_rank in enumerate(shares)
        ),
    )  # fmt: skip


def undecided() -> Diagnosis:
    """A job that was watched for too short a time."""
    return Diagnosis(
        version="0.1.0",
        verdict=Verdict(
            None, None, 0.0, 0.0, 1.0, None, "sampled from outside",
            "Only 0.4 s were seen before the job ended; watch at least 5 s, or start perfdoctor earlier.",
        ),
        breakdown=(CauseShare("unattributed", 1.0),),
        findings=(),
        not_examined=(
            GPU_NOT_EXAMINED,
            NotExamined(
                "stacks",
                "The kernel allows only a parent to look into a process (yama ptrace_scope is 1).",
                "Run as root, or: sysctl kernel.yama.ptrace_scope=0",
            ),
        ),
    )  # fmt: skip


def stuck() -> Diagnosis:
    """A job of two ranks in which one waits for a lock, and the other for that rank."""
    at = Halt(
        "lock",
        43,
        1,
        own=True,
        name="python",
        call="futex",
        line="/job/train.py:60 fill",
        threads=("/job/train.py:70 drain",),
    )
    other = Halt(
        "collective",
        42,
        0,
        own=True,
        name="python",
        call="futex",
        line="/job/train.py:80 main",
        collective="all_reduce",
    )
    summary = say("stuck.summary", kind="lock", chain=(at,), waiting=(other,), ranks=(1,), since_s=12.0)
    next_move = say("stuck.next_move", kind="lock", ends=(at,))
    return replace(
        undecided(),
        verdict=replace(undecided().verdict, straggler_rank=1, summary=summary),
        not_examined=(GPU_NOT_EXAMINED,),
        stuck=Stuck(
            "lock", 1, (1,), 12.0, 0.8, (at,), (other,), summary, next_move, say("stuck.refuted_by", kind="lock")
        ),
    )


def hostile() -> Diagnosis:
    """Every text that a stranger controls is an attack on a terminal, a page or a decoder."""
    nasty = f"{ATTACK}{TERMINAL_ATTACK}{BROKEN}"
    base = input_bound()
    finding = replace(
        base.findings[0],
        summary=nasty,
        evidence=(
            Evidence(nasty, nasty, nasty, nasty),
            Evidence("not a number", math.nan, "fraction", "threads"),
            Evidence("endless", math.inf, "s", "threads"),
        ),
        fixes=(Fix(nasty, nasty, nasty),),
        refuted_by=nasty,
    )
    return replace(
        base,
        verdict=replace(base.verdict, summary=nasty, level=nasty),
        findings=(finding,),
        steps={nasty: nasty, "median_s": math.nan},
        not_examined=(NotExamined(nasty, nasty, nasty),),
        overhead={"cpu_cores": None, "note": nasty},
        job={"command": nasty, "environment": {nasty: [nasty, None, True]}},
        series=tuple(replace(line, chart=nasty, name=nasty, unit=nasty) for line in base.series),
        activity=hostile_activity(nasty + 10_000 * "x"),
        not_drawn=(nasty,),
    )


ALL = (input_bound, sound, straggler, undecided, stuck, hostile)


def with_messages() -> Diagnosis:
    """A job that writes its log line by line, told in perfdoctor's own words."""
    logging = Finding(
        cause="io.log_write",
        share=0.4,
        severity="high",
        predicted_speedup=1.6,
        summary=say(
            "finding.summary",
            what=say("io.logs"),
            share=0.4,
            line="train.py:12 step",
            most=True,
            path=None,
            ranks=(),
            awaited=False,
            clauses=(),
            remarks=(),
        ),
        evidence=(Evidence("cores kept busy by the job", 3.0, "cores", "cpu"),),
        fixes=(advise("io.another_thread", logger=True),),
        refuted_by=say("io.logs_refuted"),
    )
    verdict = Verdict("io", "io.log_write", 0.4, 0.9, 1.6, None, "sampled from outside", logging.summary)
    breakdown = (CauseShare("io.log_write", 0.4), CauseShare("cpu.model_compute", 0.6))
    return Diagnosis("0.1.0", verdict, breakdown, (logging,))
