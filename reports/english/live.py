"""What a live view says."""

from perfdoctor.results.view import ThreadActivity

STATES = {
    ThreadActivity.RUNNING: "running",
    ThreadActivity.DELAYED: "no core",
    ThreadActivity.BLOCKED: "blocked",
    ThreadActivity.WAITING: "waiting",
    ThreadActivity.STOPPED: "stopped",
    ThreadActivity.ENDED: "ended",
    ThreadActivity.UNSEEN: "-",
}
ROLES = {"trainer": "trainer", "worker": "worker", "other": "other"}
COLUMNS = {
    "pid": "PID",
    "role": "ROLE",
    "state": "STATE",
    "cpu": "CPU%",
    "delay": "DELAY%",
    "blocked": "BLOCK%",
    "memory": "MEM",
    "shared": "SHR",
    "read": "READ/s",
    "write": "WRITE/s",
    "called": "CALLS/s",
    "faults": "FAULT/s",
    "gpu": "GPU",
    "gpu_memory": "GPU-MEM",
    "steps": "STEPS/s",
    "threads": "THR",
    "age": "AGE",
    "in": "IN",
    "name": "NAME",
    "tid": "TID",
}
LABELS = {"cores": "cores", "memory": "memory", "file": "file", "network": "network"}
KEYS = (
    ("up, down, j, k, page up, page down", "choose a process, or scroll"),
    ("enter", "what one process does: its threads, its phases, what its time goes into"),
    ("v", "the diagnosis so far: findings, and what was not examined"),
    ("escape, backspace", "back"),
    ("s, S", "sort by the next column, by the one before"),
    ("P, M, T, D, I", "sort by CPU, memory, age, run-queue delay, storage traffic"),
    ("/", "show only processes with this in their role, command, state or file; enter ends it, escape forgets it"),
    ("left, right", "in a recording that is finished: a second back, a second on"),
    ("space, home, end", "in a recording that is finished: play it at its own pace, its start, its end"),
    ("q, Ctrl-C", "quit; `attach --live` then makes the diagnosis and the reports"),
)
# The least important first: where not all have room, they go.
BAR = ("up/down", "/ filter", "s sort", "enter open", "v diagnosis", "? help", "q quit")
REPLAY_BAR = ("/ filter", "s sort", "enter open", "v diagnosis", "left/right 1 s", "space play", "? help", "q quit")
PHASES = "Phases of its steps"
THREADS = "Threads, busiest first"
SHARES = "Where its time goes"
FINDINGS = "Findings"
NOT_EXAMINED = "Not examined"
HELP = "Keys"


def first_stacks() -> str:
    return "The first Python stacks come within some seconds; without them most of the time cannot be attributed."


def watched_briefly(*, seconds: float, enough: float) -> str:
    return f"Watched for {seconds:.0f} s; a verdict takes {enough:.0f} s."


def names_of_functions() -> str:
    return "Functions in machine code get their names when you quit; until then some time is not attributed."


def no_diagnosis() -> str:
    return "No diagnosis yet."


def title(*, pid: int, host: str, watched: str | None) -> str:
    said = f"perfdoctor: job of process {pid}" + (f" on {host}" if host else "")
    return said if watched is None else f"{said}, watched for {watched}"


def replayed(*, at: str, length: str, playing: bool) -> str:
    return f"{'playing' if playing else 'recording ended'}, {at} of {length}"


def silent(*, seconds: float) -> str:
    return f"nothing new for {seconds:.0f} s: the recorder is stopped or gone"


def basis(*, confidence: str, level: str, begin: float, end: float) -> str:
    return f"confidence {confidence}, {level}; about seconds {begin:.0f} to {end:.0f}"


def cores(*, job: str, usable: str, neighbours: str, perfdoctor: str, delayed: str) -> str:
    return f"job {job} of {usable}, others {neighbours}, perfdoctor {perfdoctor}; {delayed} threads wait for a core"


def throttled(*, part: str) -> str:
    return f"quota stops it in {part} of its periods"


def pressure(*, cpu: str, memory: str, io: str) -> str:
    return f"pressure: CPU {cpu}, memory {memory}, I/O {io}"


def memory(*, job: str, used: str, total: str, cache: str, swap: str) -> str:
    return f"job {job}; {used} of {total} in use, page cache {cache}, swap {swap}"


def swapping(*, rate: str) -> str:
    return f"{rate}/s paged in and out"


def device(*, read: str, write: str, operations: str, latency: str, busy: str) -> str:
    return f"read {read}/s, write {write}/s, {operations} requests/s, {latency} a read, busy {busy}"


def link(*, received: str, sent: str, speed: str) -> str:
    return f"received {received}/s, sent {sent}/s" + (f" of {speed}/s" if speed else "")


def connections(*, threads: str) -> str:
    return f"{threads} threads of the job wait for a connection"


def gpu(*, busy: str, sm: str, tensor: str, bandwidth: str, used: str, total: str) -> str:
    return f"busy {busy}, SM {sm}, tensor {tensor}, DRAM {bandwidth}, memory {used} of {total}"


def gpu_board(*, power: str, limit: str, temperature: str, clock: str, most: str, received: str, sent: str) -> str:
    return f"{power} of {limit} W, {temperature} C, {clock} of {most} MHz, PCIe in {received}/s out {sent}/s"


def path(*, threads: str, blocked: str, call: str) -> str:
    return f"{threads} threads in {call}, {blocked} of them blocked"


def process(*, role: str, pid: int, command: str) -> str:
    return f"{role}, process {pid}: {command}"


def process_gone(*, pid: int) -> str:
    return f"Process {pid} has ended. Escape goes back."


def filtered(*, text: str, shown: int, all_of_them: int) -> str:
    return f"filter: {text} ({shown} of {all_of_them} processes)"


def too_small(*, width: int, height: int) -> str:
    return f"This terminal is too small: make it at least {width} by {height}, or press q."
