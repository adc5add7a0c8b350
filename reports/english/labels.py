"""What reports call their own parts: headings, names of rows, and words between numbers."""

from perfdoctor.diagnosis import Text


def time_goes() -> str:
    return "Where the time goes"


def rank_by_rank() -> str:
    return "Rank by rank"


def not_examined() -> str:
    return "Not examined"


def nothing_left_out() -> str:
    return "Nothing was left out."


def to_enable(*, how: str) -> str:
    return f"To enable: {how}"


def the_job() -> str:
    return "The job"


def evidence() -> str:
    return "Evidence"


def what_to_change() -> str:
    return "What to change"


def what_refutes() -> str:
    return "What would prove this wrong"


def to_change(*, titles: tuple[str, ...]) -> str:
    return f"To change: {'; '.join(titles)}."


def all_in_files() -> str:
    return "--report FILE.html and --json FILE.json have all of it, small findings too."


def straggler() -> str:
    return "straggler"


def severity(*, severity: str) -> str:
    return severity


def of_the_time(*, share: str) -> str:
    return f"{share} of the time"


def if_fixed(*, speedup: str) -> str:
    return f"{speedup} if fixed"


def listed(*, items: tuple[str, ...]) -> str:
    return "; ".join(items)


def sequence(*, items: tuple[str, ...]) -> str:
    return ", ".join(items)


def text(*, sentences: tuple[str, ...]) -> str:
    return " ".join(sentences)


def named(*, name: str, value: str) -> str:
    return f"{name}: {value}"


def aside(*, text: str, more: str) -> str:
    return f"{text} ({more})"


def unit(*, unit: str) -> str:
    return unit


def unknown() -> str:
    return "unknown"


def yes() -> str:
    return "yes"


def no() -> str:
    return "no"


def none() -> str:
    return "none"


def of_one_core(*, share: str) -> str:
    return f"{share} of one core"


def no_verdict(*, why: Text) -> str:
    return f"No bottleneck can be named.{f' {why}' if why else ''}"


def job_has_ended() -> str:
    return "The job has ended. Attach to one that trains."


def dump_stacks(*, pid: int | None) -> str:
    return f"`py-spy dump --pid {pid}` shows what all of its threads do. Attach again once the job trains."


def attach_to_training() -> str:
    return "Attach once the job trains, and name the process that trains or one above it."


def attach_again() -> str:
    return "Attach again while the job trains, or watch longer with --duration SECONDS."


def check_probes(*, pid: object) -> str:
    return f"`perfdoctor check {pid}` says what perfdoctor was not able to look at, and what enables it."


def missing_above() -> str:
    return "What is missing stands above, with what enables it."


def left_as_it_was(*, path: str) -> str:
    return f"{path} is left as it was: an earlier diagnosis that names a bottleneck."
