"""What happened to a job that is watched for days, and headings of its history."""

_SIGNALS = {
    "job_memory_bytes": "memory of the job",
    "swapped_bytes": "swapped out of the job",
    "memory_available_bytes": "memory left to the job",
    "page_cache_bytes": "page cache",
    "job_cores": "cores that the job keeps busy",
    "neighbour_cores": "cores that others keep busy",
    "core_clock_hertz": "clock of the cores",
    "gpu_temperature_celsius": "temperature of the GPU",
    "gpu_clock_hertz": "clock of the GPU",
    "gpu_memory_bytes": "memory of the GPU",
}


def found(*, pid: int, command: str) -> str:
    return f"watching process {pid}: {command}"


def started_again(*, pid: int) -> str:
    return f"the job has been started again, as process {pid}"


def ended(*, pid: int) -> str:
    return f"the job (process {pid}) has ended; waiting for it to be started again"


def given_up() -> str:
    return "the job was not started again; the watching has ended"


def interrupted() -> str:
    return "the watching was ended"


def unseen(*, reason: str) -> str:
    return f"not seen: {reason}"


def slower(*, more: str, before: str, after: str) -> str:
    return f"{more} slower: a step takes {after} instead of {before}"


def faster(*, less: str, before: str, after: str) -> str:
    return f"faster: a step takes {after} instead of {before}, {less} less"


def dip(*, said: str, lasted: str) -> str:
    return f"for {lasted} {said}"


def recurring(*, count: int, longer: str, share: str, rhythm: str) -> str:
    return f"{count} steps took {longer} longer than the others, {share} of the time: {rhythm}"


def every_steps(*, steps: int, every: str) -> str:
    return f"one of {steps:,} steps, about every {every}"


def by_the_clock(*, every: str) -> str:
    return f"every {every} by the clock, however many steps lie between"


def every(*, every: str) -> str:
    return f"about every {every}"


def dips(*, count: int, lasted: str, lost: str, share: str, rhythm: str) -> str:
    return f"slower for a while, {count} times: {lasted} each, of which {lost} are lost, {share} of the time: {rhythm}"


def restarts(*, count: int, lost: str, share: str, rhythm: str) -> str:
    return f"the job was started again {count} times and did not train for {lost} each, {share} of the time: {rhythm}"


def no_rhythm() -> str:
    return "they keep no rhythm"


def drift(*, more: str, before: str, after: str, meanwhile: tuple[str, ...]) -> str:
    beside = f"; meanwhile {', '.join(meanwhile)}" if meanwhile else ""
    return f"slowly {more} slower: a step takes {after} instead of {before} then{beside}"


def signal(*, name: str, change: str) -> str:
    return f"{_SIGNALS.get(name, name)} {change}"


def memory(*, before: str, after: str, each_hour: str, left: str | None) -> str:
    until = "" if left is None else f"; none will be left in {left}"
    return f"the job's memory grows: {after} instead of {before}, {each_hour} more each hour{until}"


def no_steps(*, usual: str | None, lasted: str | None) -> str:
    if usual is None:
        return "the job does not move" if lasted is None else f"the job did not move for {lasted}"
    how_long = "no step is made" if lasted is None else f"no step was made for {lasted}"
    return f"{how_long}, where one usually takes {usual}"


def stuck(*, said: str, title: str, summary: str) -> str:
    return f"{said}: {title}. {summary}"


def cause(*, cause: str, before: str, after: str) -> str:
    return f"{cause} takes {after} of the time instead of {before}"


def because(*, said: str, cause: str, less: bool) -> str:
    return f"{said}. What takes {'less' if less else 'more'}: {cause}"


def heading_history() -> str:
    return "What happened"


def heading_periods() -> str:
    return "How it went"


def nothing_happened() -> str:
    return "Nothing that exceeds the noise."


def watched(*, since: str, until: str, beats: str, windows: int, cost: str) -> str:
    return f"From {since} to {until}: steps counted over {beats}, {windows} windows of perfdoctor attach ({cost})."


def window_cost(*, cost: str, cores: str) -> str:
    return f"{cost} of CPU time, {cores} of a core"


def column_from() -> str:
    return "from"


def column_steps() -> str:
    return "steps"


def column_step() -> str:
    return "a step takes"


def column_long() -> str:
    return "long steps"


def column_cause() -> str:
    return "mostly"


def column_memory() -> str:
    return "memory"


def not_seen() -> str:
    return "not seen"
