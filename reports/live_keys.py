"""What the user of a live view has chosen to see, and how keys change that."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfdoctor.results.view import ProcessView, View

JOB, PROCESS, FINDINGS, HELP = "job", "process", "findings", "help"
# By what processes can be sorted; "" is the order of ranks.
SORTS = ("", "cpu", "delay", "blocked", "memory", "read", "write", "steps", "gpu_memory", "age")
_PAGES = {"?": HELP, "h": HELP, "v": FINDINGS}
_SORT_KEYS = {"P": "cpu", "M": "memory", "T": "age", "D": "delay", "I": "read"}
_PAGE = 10  # lines that Page Up and Page Down move by


@dataclass(frozen=True, slots=True)
class Selection:
    """What is shown.

    Attributes:
        page: ``JOB``, ``PROCESS``, ``FINDINGS`` or ``HELP``.
        sort: one of ``SORTS``.
        filter: what processes must have in them to be shown.
        typing: keys go into the filter.
        pid: the chosen process; None for the first one.
        scroll: lines of another page that are above the screen.
        at_s: the instant of the recording; None for its end.
        playing: the instant moves on by itself.
        quit: the user has seen enough.
    """

    page: str = JOB
    sort: str = ""
    filter: str = ""
    typing: bool = False
    pid: int | None = None
    scroll: int = 0
    at_s: float | None = None
    playing: bool = False
    quit: bool = False


def press(choice: Selection, key: str, view: View | None) -> Selection:
    """What is shown after a key was pressed.

    Args:
        choice: what was shown.
        key: a character, or the name of a key, as ``perfdoctor.reports.terminal`` says.
        view: what it was shown of; None before there is one.
    """
    if key == "ctrl-c":
        return replace(choice, quit=True)
    if choice.typing:
        return _type(choice, key)
    if key in ("q", "Q"):
        return replace(choice, quit=True)
    if key in _PAGES:
        page = _PAGES[key]
        return replace(choice, page=JOB if choice.page == page else page, scroll=0)
    if key in ("escape", "backspace"):
        return replace(choice, page=JOB, scroll=0, filter="" if choice.page == JOB else choice.filter)
    if key == "/":
        return replace(choice, page=JOB, scroll=0, typing=True)
    if key in _SORT_KEYS:
        return replace(choice, sort=_SORT_KEYS[key])
    if key in ("s", "S"):
        place = SORTS.index(choice.sort) + (1 if key == "s" else -1)
        return replace(choice, sort=SORTS[place % len(SORTS)])
    if view is None:
        return choice
    if key == "enter":
        chosen = selected(choice, view)
        return replace(choice, page=PROCESS, scroll=0, pid=chosen.pid) if chosen is not None else choice
    return _move(choice, key, view) if key in _STEPS else _replay(choice, key, view)


def _type(choice: Selection, key: str) -> Selection:
    """A key while the filter is typed."""
    if key == "enter":
        return replace(choice, typing=False)
    if key == "escape":
        return replace(choice, typing=False, filter="")
    if key == "backspace":
        return replace(choice, filter=choice.filter[:-1])
    return replace(choice, filter=choice.filter + key) if len(key) == 1 and key.isprintable() else choice


_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -_PAGE, "page down": _PAGE}


def _move(choice: Selection, key: str, view: View) -> Selection:
    """Another process is chosen, or another page scrolled."""
    if choice.page != JOB:
        return replace(choice, scroll=max(0, choice.scroll + _STEPS[key]))
    shown = [process.pid for process in chosen_processes(choice, view)]
    if not shown:
        return choice
    place = shown.index(choice.pid) if choice.pid in shown else 0
    return replace(choice, pid=shown[min(max(place + _STEPS[key], 0), len(shown) - 1)])


def _replay(choice: Selection, key: str, view: View) -> Selection:
    """Another instant, of a recording that is finished."""
    if view.live:
        return choice
    at_s = view.length_s if choice.at_s is None else choice.at_s
    if key in ("left", "right"):
        at_s += 1.0 if key == "right" else -1.0
        return replace(choice, at_s=None if at_s >= view.length_s else max(0.0, at_s), playing=False)
    if key == " ":
        from_start = not choice.playing and choice.at_s is None
        return replace(choice, playing=not choice.playing, at_s=0.0 if from_start else choice.at_s)
    if key in ("home", "end"):
        return replace(choice, at_s=0.0 if key == "home" else None, playing=False)
    return choice


def moved_on(choice: Selection, view: View | None, seconds: float) -> Selection:
    """What is shown so many seconds later, while a recording is played."""
    if not choice.playing or choice.at_s is None or view is None:
        return choice
    at_s = choice.at_s + seconds
    return replace(choice, at_s=None, playing=False) if at_s >= view.length_s else replace(choice, at_s=at_s)


def chosen_processes(choice: Selection, view: View) -> list[ProcessView]:
    """The processes to show, in order."""
    shown = [process for process in view.processes if _matches(process, choice.filter.lower())]
    return sorted(shown, key=lambda process: -(sort_value(process, choice.sort) or 0.0)) if choice.sort else shown


def selected(choice: Selection, view: View) -> ProcessView | None:
    """The chosen process, or the first one that is shown."""
    shown = chosen_processes(choice, view)
    return next((process for process in shown if process.pid == choice.pid), shown[0] if shown else None)


def _matches(process: ProcessView, text: str) -> bool:
    main = process.main
    fields = (str(process.pid), process.role, process.command, main.state.name, main.call, main.target)
    return any(text in field.lower() for field in fields)


def sort_value(process: ProcessView, column: str) -> float | None:
    """By what a process is sorted."""
    values = {
        "cpu": process.cores,
        "delay": process.main.delay,
        "blocked": process.main.blocked,
        "memory": process.memory,
        "read": process.read,
        "write": process.write,
        "steps": process.steps,
        "gpu_memory": process.gpu_memory,
        "age": process.age_s,
    }
    return values[column]
