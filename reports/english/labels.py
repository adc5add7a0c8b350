"""What reports call their own parts: headings, names of rows, and words between numbers."""

from perfdoctor.messages import Text
from perfdoctor.reports.english.phrases import singular
from perfdoctor.reports.language import either

_RESOURCES = {"cpu": "CPU", "gpu": "GPU", "io": "I/O", "communication": "Communication"}


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


def settings() -> str:
    return "Settings"


def evidence() -> str:
    return "Evidence"


def what_to_change() -> str:
    return "What to change"


def what_refutes() -> str:
    return "What would prove this wrong"


def to_change(*, titles: tuple[str, ...]) -> str:
    return f"To change: {'; '.join(titles)}."


def all_in_files() -> str:
    return "--report FILE.html and --json FILE.json write everything, small findings included."


def straggler() -> str:
    return "straggler"


def severity(*, severity: str) -> str:
    return severity


def no_bottleneck_named() -> str:
    return "No bottleneck named: there is not enough evidence"


def unequal_ranks() -> str:
    return "Unequal ranks hold this job back"


def no_bottleneck() -> str:
    return "No bottleneck found"


def bottleneck(*, resource: str, title: str) -> str:
    return f"{_RESOURCES[resource]} bottleneck: {title}"


def headline(*, claim: str, share: str, gain: str, beyond: bool, faster: str) -> str:
    how = "with the first change, which frees other time as well" if beyond else "if fixed"
    more = f"; to make it faster than that, {faster}" if faster else ""
    return f"{claim}, {share} of the time" + (f", {gain} {how}" if gain else "") + more


def headline_healthy(*, claim: str, share: str, title: str, gain: str, faster: str) -> str:
    more = f"; to make it faster, {faster}" if faster else ""
    return f"{claim}{f', {gain} if equal' if gain else ''}: {share} is {title}{more}"


def share_of_time() -> str:
    return "Share of wall time"


def predicted_speedup() -> str:
    return "Predicted speed-up if fixed"


def confidence() -> str:
    return "Confidence"


def straggler_rank() -> str:
    return "Straggler"


def rank(*, rank: int) -> str:
    return f"rank {rank}"


def how_known() -> str:
    return "How it is known"


def cause() -> str:
    return "Cause"


def others_wait(*, rank: int) -> str:
    return f"Rank {rank} is the straggler: the other ranks wait for it."


def small_causes(*, count: int, limit: str) -> str:
    return f"{count} other causes, each below {limit}"


def pid_and_workers(*, pid: int | None, workers: int) -> str:
    return f"pid {pid}, {workers} worker{'' if workers == 1 else 's'}"


def waits_for_ranks(*, share: str, rank: str, others: int) -> str:
    return f"waits {share} for {'others, longest for ' if others else ''}rank {rank}"


def late_host(*, host: str) -> str:
    return f"The ranks of host {host} hold the others back: nearly all waiting is for them."


def late_position(*, position: int) -> str:
    return (
        f"The ranks at position {position} of each host, counted from 0, hold the others back: nearly all waiting is "
        "for them, on whichever host they are."
    )


def alike() -> str:
    return "Ranks that spend their time alike"


def alike_ranks(*, count: int, first: int, waits: str) -> str:
    return (
        f"rank {first}, which waits {waits}" if count == 1 else f"{count} ranks like rank {first}, which wait {waits}"
    )


def ranks(*, ranks: tuple[int, ...]) -> str:
    *first, last = map(str, ranks)
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"


def times_as_fast(*, least: str, likely: str, most: str) -> str:
    if not least:
        return f"likely {likely}, at most {most} times as fast" if likely else f"up to {most} times as fast"
    return f"{most} times as fast" if least == most else f"{least} to {most} times as fast"


def between(*, least: str, most: str) -> str:
    return f"{least} to {most}"


def diagnosis_cost() -> str:
    return "What this diagnosis cost"


def its_steps() -> str:
    return "Its steps"


def steps_of(*, rank: int, straggler: bool) -> str:
    return f"Steps of rank {rank}" + (", the straggler" if straggler else "")


def steps_of_waiting(*, rank: int, waits_for: int) -> str:
    return f"Steps of rank {rank}, which waits for rank {waits_for}"


def steps_observed() -> str:
    return "Steps observed"


def steps_counted(*, passes: bool) -> str:
    return "Backward passes counted from outside" if passes else "Steps counted from outside"


def steps_traced() -> str:
    return "Steps traced"


def in_functions() -> str:
    return "In functions of the job's own"


def of_a_step(*, share: str, line: str) -> str:
    return f"{share} of a step: {line}"


def time_per_step() -> str:
    return "Time per step"


def time_per_pass() -> str:
    return "Time per backward pass"


def step_times(*, median: str, mean: str, slow: str) -> str:
    return f"{median} in the median, {mean} in the mean, {slow} or less in 95%"


def a_step(*, time: str) -> str:
    return f"{time} a step"


def on_device(*, time: str) -> str:
    return f"{time} on the device"


def by_itself(*, time: str) -> str:
    return f"{time} by itself"


def parts_by_themselves() -> str:
    return "Parts by themselves"


def in_sum(*, time: str, steps: str) -> str:
    return f"{time} a step in total, over {steps} steps"


def overlaps(*, share: str) -> str:
    return f"{share} of that overlaps"


def of_that_gc() -> str:
    return "Of that, garbage collection (GC)"


def between_steps() -> str:
    return "Between steps"


def trial_batch() -> str:
    return "On a batch in memory"


def profiled() -> str:
    return "While profiled"


def over_steps(*, time: str, steps: str) -> str:
    return f"{time} per step, over {steps} steps"


def of_the_time(*, share: str) -> str:
    return f"{share} of the time"


def if_fixed(*, gain: str) -> str:
    return f"{gain} if fixed"


def listed(*, items: tuple[str, ...]) -> str:
    return "; ".join(items)


def sequence(*, items: tuple[str, ...]) -> str:
    return ", ".join(items)


def text(*, sentences: tuple[str, ...]) -> str:
    return " ".join(sentences)


def named(*, name: str, value: str) -> str:
    return f"{name}: {value}"


def full_stop(*, text: str) -> str:
    return f"{text}."


def aside(*, text: str, more: str) -> str:
    return f"{text} ({more})"


def unit(*, unit: str, one: bool) -> str:
    return singular(unit) if one else unit


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


def dump_stacks(*, pid: int) -> str:
    return f"`py-spy dump --pid {pid}` shows what all of its threads do. Attach again once the job trains."


def attach_to_training() -> str:
    return "Attach once the job trains, and name the process that trains or one above it."


def attach_again() -> str:
    return f"Attach again while the job trains, or watch longer with {either('--duration SECONDS', tool='`seconds`')}."


def check_probes(*, pid: object) -> str:
    check = either(f"`perfdoctor check {pid}`", tool=f"`check` with pid {pid}")
    return f"{check} says what perfdoctor was not able to look at, and what enables it."


def missing_above() -> str:
    return "What is missing is listed above, with what enables it."


def left_as_it_was(*, path: str) -> str:
    return f"{path} is left as it was: an earlier diagnosis that names a bottleneck."


def is_stuck(*, title: str) -> str:
    return f"The job is stuck: {title}"


def still_since() -> str:
    return "Nothing has moved for"


def held_up_by() -> str:
    return "Held up by"


def who_stands_where() -> str:
    return "Where each process is"


def what_to_do() -> str:
    return "What to do"


def host_with_ranks(*, name: str, ranks: tuple[int, ...]) -> str:
    return f"{name} with rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"


def with_price(*, why: str, price: str) -> str:
    return f"{why} {price}"


def needs_torch(*, name: str, since: str, torch: str) -> str:
    return f"# {name} needs PyTorch {since} or newer; this job runs {torch}"
