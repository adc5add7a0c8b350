"""What rules ask of the case: settings and variables of the job, and where a cause lies."""

from perfdoctor.rules.case import Case, Trainer


def culprits(case: Case, cause: str) -> list[Trainer]:
    """The trainers in which a cause lies; all of them where that is not known."""
    ranks = case.culprits.get(cause, ())
    return [trainer for trainer in case.trainers if trainer.rank in ranks] or list(case.trainers)


def hot_line(case: Case, cause: str) -> str | None:
    """The job's own source line that is on the stack most often, as ``file.py:12 function``."""
    lines = case.lines.get(cause, ())
    return lines[0][0] if lines else None


def hot_path(case: Case, cause: str) -> str | None:
    """The file that was read, written or waited on most; pipes, sockets and the like do not count."""
    for target, _ in case.paths.get(cause, ()):
        kind, _, path = target.partition(":")
        if kind == "file":
            return path
        if target.startswith("/"):
            return target
    return None


def is_read_by_another(case: Case, cause: str) -> bool:
    """Whether most of a cause is about a pipe, a terminal or a connection, whose other end may be slow, and no file."""
    ends = [part for target, part in case.paths.get(cause, ()) if target.startswith(("pipe", "socket"))]
    return sum(ends) > 0.5


def setting(case: Case, name: str) -> float | None:
    """A setting as a number; None if unknown or not a number."""
    try:
        value = float(case.settings[name])
    except (KeyError, ValueError):
        return None
    return value if value == value else None


def variable(case: Case, name: str) -> str | None:
    """An environment variable of the job; None if unset or unknown."""
    value = case.settings.get(f"env.{name}")
    return None if value is None else str(value)


def switched_on(case: Case, name: str) -> bool:
    """Whether an environment variable is set to something that means yes."""
    return (variable(case, name) or "").strip().lower() not in ("", "0", "false", "no", "off")


def uses_gpu(case: Case) -> bool:
    """Whether the job is known to use a GPU."""
    return (case.number("gpus") or setting(case, "gpus") or 0) > 0


def memory_used(case: Case) -> float | None:
    """Which fraction of the GPU's memory is in use, as the driver or else PyTorch's allocator says."""
    used = case.number("gpu_memory_share")
    return case.number("traced_memory") if used is None else used
