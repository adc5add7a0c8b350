"""Numbers, counts and phrases as several findings write them; no messages."""

import shlex

from perfdoctor.diagnosis import Evidence


def percent(share: float) -> str:
    """A fraction for people: ``37%``."""
    return f"{100 * share:.0f}%" if share >= 0.01 or share == 0 else "less than 1%"


_SINGULARS = {"processes": "process"} | {
    f"{one}s": one for one in ("core", "worker", "thread", "GPU", "repair", "error", "operator", "kernel", "byte")
}


def singular(unit: str) -> str:
    """The unit of one such thing."""
    return _SINGULARS.get(unit, unit)


def counted(number: float, thing: str, things: str = "") -> str:
    """A number of things: ``1 core``, ``1.5 cores``."""
    return f"{number:g} {thing if number == 1 else things or thing + 's'}"


def amount(measured: Evidence) -> str:
    """A measured number with its unit, ``439 MB/s``."""
    value, unit = measured.value, measured.unit
    if isinstance(value, (int, float)):
        value = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    unit = singular(unit) if value == "1" else unit
    return f"{value}{'' if not unit else unit if unit.startswith('/') else ' ' + unit}"


def then(sentence: str | None) -> str:
    """A sentence that follows another one, with the blank between them; nothing where there is none."""
    return f" {sentence}" if sentence else ""


def exports(variables: tuple[tuple[str, str], ...]) -> str:
    """Commands that set some environment variables in a shell."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables)


def twice_the_batch(loader: bool) -> str:
    """The change that doubles the batch, in a loader if the job may have one."""
    if loader:
        return "DataLoader(..., batch_size=2 * batch_size)"
    return "batch_size = 2 * batch_size  # unless a step takes all of the data already"


def one_in(times: int, call: str, when: str) -> str:
    """The change that makes a call so many times as rarely: under a condition that is known, or counted by itself."""
    if when:
        return f"if {when}: {call}"
    return f"""\
import itertools
turns = itertools.count(1)  # once, before the loop
if next(turns) % {times} == 0: {call}  # in place of the call as it stands"""


def fewer_checkpoints(loop: str) -> str:
    """The change that has fewer blocks run again, in whose loop it is made."""
    if loop == "transformers":  # its Trainer turns checkpointing on by this, whatever the model was told before
        return "TrainingArguments(..., gradient_checkpointing=False)"
    return (
        "x = checkpoint(block, x, use_reentrant=False) if number % 2 else block(x)  # every second block, then fewer\n"
        "# of transformers: model.gradient_checkpointing_disable()"
    )


def blocks_run_again(again: float, used: float | None, memory: str, *, full: bool) -> str:
    """What checkpointed blocks take, and how much room some memory has for what they would keep."""
    if used is None:
        room = "How much memory is free was not seen: check that first, since activations that are kept need it."
    elif full:
        room = f"{percent(used)} of {memory} is in use, so not all activations will fit."
    else:
        room = f"{percent(1 - used)} of {memory} is free for activations that are kept."
    return (
        f"Checkpointed blocks run their forward pass again in the backward pass: {percent(again)} of the time. {room}"
    )
