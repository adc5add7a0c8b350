"""What `perfdoctor ps` and `perfdoctor check` say."""

HEADINGS = ("PID", "USER", "RANKS", "WORKERS", "GPUS", "AGE", "CPU", "MEMORY", "STEPS/S", "COMMAND")
IDLE = "idle"
NO_GPU = "none"
CHECKED = {"probe": "probe", "state": "", "reason": "why", "enable": "to enable", "again": "as above"}
STATES = {"works": "works", "in part": "in part", "no": "no"}


def unread(*, processes: int, reason: str) -> str:
    many = "1 process" if processes == 1 else f"{processes} processes"
    missing = f"{many} may not be read, and jobs among them are missing here. " if processes else ""
    return f"{missing}{reason}"


def to_see(*, enable: str) -> str:
    return f"To see them: {enable}"


def none_found(*, some_unread: bool) -> str:
    of_which = " that may be read" if some_unread else ""
    return f"No training job runs on this host: no process{of_which} has PyTorch loaded."


def family(*, processes: int, torch: int, names: str) -> str:
    return f"Of {processes} processes {torch} {'has' if torch == 1 else 'have'} PyTorch: {names}."


def to_enable(*, enable: str) -> str:
    return f"to enable: {enable}"


def steps() -> str:
    return "`attach --steps` counts its steps, where this works:"


def ways() -> str:
    return "`attach --trace` takes the first of these that works:"
