"""What every finding says, whatever its cause."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import percent


def summary(
    *,
    what: str,
    share: float,
    line: str | None,
    most: bool,
    path: str | None,
    ranks: tuple[int, ...],
    awaited: bool,
    clauses: tuple[str, ...],
    remarks: tuple[str, ...],
) -> str:
    text = f"{what} takes {percent(share)} of the time"
    if line:
        text += f", {'most of it' if most else 'above all'} at {line}"
    elif path:
        text += f", most of it on {path}"
    if ranks:
        *first, last = map(str, ranks)
        named = f"ranks {', '.join(first)} and" if first else "rank"
        text += f"; it happens on {named} {last}"
        text += f", and the other ranks wait for {'them' if len(ranks) > 1 else 'it'}" if awaited else ""
    return " ".join(["; ".join([text, *clauses]) + ".", *remarks])


def once(*, seconds: float, watched: float) -> str:
    return (
        f"It was met for {seconds:.3g} s out of {watched:.3g} s watched and not seen to come again, so how often it "
        "happens, and what it costs over the whole training, is not known: watch longer to see."
    )


def after_input(*, busy: float) -> str:
    return (
        f"Loader workers are at work for {percent(busy)} of the time: what is saved here, the trainer waits for "
        "batches instead. It counts once the input keeps up."
    )


def spent_on(*, cause: str) -> str:
    return f"wall time spent on {cause}"


def where() -> str:
    return "where most of it happens"


def library_call() -> str:
    return "library call that takes much of it"


def done_alone(*, rank: int) -> str:
    return f"what rank {rank} does and the others do not"


def on_what() -> str:
    return "what most of it is spent on"


def operator() -> str:
    return "operator that takes most of it"


def kernel() -> str:
    return "kernel that takes most of it"


def part(*, what: str, part: float) -> str:
    return f"{what} ({percent(part)})"


def function(*, line: str, part: float, alone: float | None) -> str:
    """A function by its hottest line, with the part of the whole function, and of that line by itself."""
    by_itself = "" if alone is None or percent(alone) == percent(part) else f"; {percent(alone)} at this line"
    return f"{line} ({percent(part)}{by_itself})"


def unset(*, name: str, value: str, why: str) -> Fix:
    return Fix(f"Unset {name}", f"It is set to {value} in this job. {why}", f"unset {name}")
