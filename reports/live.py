"""A live view as lines of text for a terminal: the verdict so far, the machine, and the job's processes as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.messages import say
from perfdoctor.reports.console import FAINT, TONES
from perfdoctor.reports.live_keys import FINDINGS, HELP, PROCESS, Selection, chosen_processes, selected
from perfdoctor.reports.live_table import Column, columns_of_processes, columns_of_threads, row, short_size
from perfdoctor.reports.outline import Outline, outline
from perfdoctor.reports.text import clean, duration, percent
from perfdoctor.reports.wording import cause_title, live_words, worded
from perfdoctor.reports.wrapping import fitted, lines_of
from perfdoctor.results.view import DeviceView, GpuView, HostView, LinkView, ProcessView, View

if TYPE_CHECKING:
    from rich.text import Text

# A smaller terminal shows too little of anything.
MIN_WIDTH, MIN_HEIGHT = 60, 16
_BAR = 20  # characters between the brackets
_CAUSES = 5  # lines of the breakdown
_DEVICES = 2  # lines of block devices, of links, and of files
_LABEL = 8  # columns of what stands before a bar
_TITLE = 20  # columns that the job's name has at least
_DEVICE_TICK_S = 1e-3  # /proc/diskstats has whole milliseconds
_SOME = 0.05  # threads at a time that are worth a line


class Drawing:
    """Draws views; what takes long is kept from one to the next.

    Attributes:
        most_scroll: by how many lines what was drawn last can be scrolled.
    """

    def __init__(self) -> None:
        self.most_scroll = 0
        self._diagnosis: Diagnosis | None = None
        self._outline: Outline | None = None

    def lines(self, view: View | None, choice: Selection, width: int, height: int) -> list[Text]:
        """A screen of so many columns, and at most so many lines.

        Args:
            view: what is shown; None before there is anything.
            choice: what the user has chosen to see of it.
            width: columns.
            height: lines.
        """
        if width < MIN_WIDTH or height < MIN_HEIGHT:
            return [_text(worded(say("live.too_small", width=MIN_WIDTH, height=MIN_HEIGHT)))]
        if view is None:
            return [_text(worded(say("live.no_diagnosis")))]
        page = list(self._page(view, choice, width, height - 2))
        self.most_scroll = max(0, len(page) - (height - 2))
        first = min(choice.scroll, self.most_scroll)
        body = page[first : first + height - 2]
        body += [_text("")] * (height - 2 - len(body))
        shown = [_title(view, choice, width - 1), *body, _keys(view, choice, width - 1)]
        for line in shown:
            line.truncate(width - 1)  # a full line would go on in the next one on some terminals
        return shown

    def _page(self, view: View, choice: Selection, width: int, height: int) -> Iterator[Text]:
        known = self._outlined(view.diagnosis)
        if choice.page == HELP:
            yield from _help()
        elif choice.page == FINDINGS:
            yield from _findings(view, known, width)
        elif choice.page == PROCESS:
            yield from _process(view, choice, width)
        else:
            room = height - min(len(view.processes) + 1, max(4, height // 2)) - 2
            verdict = list(_verdict(view, known, width))[: max(3, room // 2)]
            above = [*verdict, _text(""), *_fitting(list(_machine(view)), room - len(verdict)), _text("")]
            yield from above
            yield from _table(view, choice, width, height - len(above))

    def _outlined(self, diagnosis: Diagnosis | None) -> Outline | None:
        if diagnosis is not self._diagnosis:
            self._diagnosis, self._outline = diagnosis, None if diagnosis is None else outline(diagnosis)
        return self._outline


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style=style, no_wrap=True, overflow="crop", end="")


def _heading(text: str) -> Text:
    return _text(text, "bold")


def _title(view: View, choice: Selection, width: int) -> Text:
    """The first line. The job's name gives way to what is shown of it, where not both have room."""
    watched, length = duration(round(view.at_s)), duration(round(view.length_s))
    beside = _text("")
    if not view.live:
        beside.append("  " + worded(say("live.replayed", at=watched, length=length, playing=choice.playing)), "cyan")
    if view.silent_s:
        beside.append("  " + worded(say("live.silent", seconds=view.silent_s)), "bold yellow")
    said = say("live.title", pid=view.pid, host=clean(view.host_name), watched=watched if view.live else None)
    title = _heading(worded(said))
    title.truncate(max(_TITLE, width - beside.cell_len), overflow="ellipsis")
    return title.append_text(beside)


def _keys(view: View, choice: Selection, width: int) -> Text:
    """The last line: as many of the keys as have room, or the filter as it is typed."""
    if choice.typing:
        return _text(f"/{clean(choice.filter)}_", "reverse")
    keys = live_words().BAR if view.live else live_words().REPLAY_BAR
    lines = (_text("  ".join(keys[dropped:]), FAINT) for dropped in range(len(keys)))
    return next(line for line in lines if line.cell_len <= width)


def _verdict(view: View, known: Outline | None, width: int) -> Iterator[Text]:
    """What holds the job back, as far as that is known, and what a surer answer waits for."""
    if known is None or view.diagnosis is None:
        yield _text(worded(say("live.no_diagnosis")), TONES["unknown"])
    else:
        verdict = view.diagnosis.verdict
        yield from _wrapped(known.headline, width, 0, TONES[known.tone])
        if verdict.cause is None:
            yield from _wrapped(known.summary, width, 0)
        if known.straggler:
            yield _text(known.straggler, TONES["bottleneck"])
        begin, end = view.diagnosed_s
        sure, level = percent(verdict.confidence), worded(verdict.level)
        yield _text(clean(say("live.basis", confidence=sure, level=level, begin=begin, end=end)), FAINT)
    for item in view.missing:
        yield _text(clean(item), "yellow")
    for part in known.breakdown[:_CAUSES] if known is not None else ():
        yield _text(f"{_bar(part.share)} {part.percent:>4} {part.title}")


def _bar(share: float) -> str:
    """A share of a bar in brackets, as htop draws it; at least one mark of what is more than nothing."""
    marks = min(_BAR, max(1, round(share * _BAR))) if share > 0 else 0
    return f"[{'|' * marks:<{_BAR}}]"


def _machine(view: View) -> Iterator[tuple[int, Text]]:
    """Cores, memory, GPUs, devices with the files that threads are at, and links; the highest numbers go first."""
    for number, line in enumerate(_cores(view.host)):
        yield 4 * number, line
    for number, line in enumerate(_memory(view.host)):
        yield 1 + number, line
    for gpu in view.gpus:
        yield from zip((1, 4), _gpu(gpu), strict=True)
    for device in sorted(view.devices, key=_traffic)[:_DEVICES]:
        yield 2, _labelled(device.name, _device(device))
    for path in view.paths[:_DEVICES]:
        said = say("live.path", threads=f"{path.threads:.1f}", blocked=f"{path.blocked:.1f}", call=path.call)
        yield 2, _labelled("file", f"{worded(said)}: {clean(path.path)}")
    for link in sorted(view.links, key=_traffic)[:_DEVICES]:
        yield 3, _labelled(link.name, _link(link))
    if view.on_network >= _SOME:
        yield 3, _labelled("network", worded(say("live.connections", threads=f"{view.on_network:.1f}")))


def _fitting(lines: list[tuple[int, Text]], room: int) -> list[Text]:
    """As many lines as have room, those with the lowest numbers, in their order."""
    kept = sorted(range(len(lines)), key=lambda place: (lines[place][0], place))[: max(0, room)]
    return [lines[place][1] for place in sorted(kept)]


def _traffic(one: DeviceView | LinkView) -> float:
    """Negative bytes per second, for the busiest first."""
    both = (one.read, one.write) if isinstance(one, DeviceView) else (one.received, one.sent)
    return -sum(amount or 0.0 for amount in both)


def _labelled(label: str, text: str) -> Text:
    from rich.text import Text

    shown = fitted(live_words().LABELS.get(label, clean(label)), _LABEL)
    return Text.assemble((f"{shown} ", "cyan"), text, no_wrap=True, overflow="crop", end="")


def _cores(host: HostView) -> Iterator[Text]:
    job, usable, others, ours = (_amount(part, 2) for part in (host.job, host.usable, host.neighbours, host.perfdoctor))
    said = say("live.cores", job=job, usable=usable, neighbours=others, perfdoctor=ours, delayed=f"{host.delayed:.1f}")
    share = host.job / host.usable if host.job is not None and host.usable else 0.0
    yield _labelled("cores", f"{_bar(share)} {worded(said)}")
    if host.throttled:
        yield _labelled("", worded(say("live.throttled", part=percent(host.throttled))))
    pressures = [_share(part) for part in (host.cpu_pressure, host.memory_pressure, host.io_pressure)]
    if any(pressure != "-" for pressure in pressures):
        yield _labelled("", worded(say("live.pressure", cpu=pressures[0], memory=pressures[1], io=pressures[2])))


def _memory(host: HostView) -> Iterator[Text]:
    total = min((size for size in (host.memory_limit, host.memory_total) if size is not None), default=None)
    used = None
    if host.memory_total is not None and host.memory_available is not None:
        used = host.memory_total - host.memory_available
    share = used / host.memory_total if used is not None and host.memory_total else 0.0
    said = say(
        "live.memory",
        job=short_size(host.job_memory),
        used=short_size(used),
        total=short_size(total),
        cache=short_size(host.page_cache),
        swap=short_size(host.swap_used),
    )
    yield _labelled("memory", f"{_bar(share)} {worded(said)}")
    if host.swapped:
        yield _labelled("", worded(say("live.swapping", rate=short_size(host.swapped))))


def _device(device: DeviceView) -> str:
    said = say(
        "live.device",
        read=short_size(device.read),
        write=short_size(device.write),
        operations=_amount(device.operations, 0),
        latency=_latency(device.latency_s),
        busy=_share(device.busy),
    )
    return worded(said)


def _latency(seconds: float | None) -> str:
    """What a read took; less than the kernel's clock of devices ticks is no time of 0."""
    return "-" if seconds is None else duration(seconds) if seconds else f"<{duration(_DEVICE_TICK_S)}"


def _link(link: LinkView) -> str:
    speed = "" if link.speed is None else short_size(link.speed / 8)
    return worded(say("live.link", received=short_size(link.received), sent=short_size(link.sent), speed=speed))


def _gpu(gpu: GpuView) -> Iterator[Text]:
    used, whole = short_size(gpu.memory_used), short_size(gpu.memory_total)
    busy, sm, tensor, dram = (_share(part) for part in (gpu.busy, gpu.sm, gpu.tensor, gpu.bandwidth))
    said = say("live.gpu", busy=busy, sm=sm, tensor=tensor, bandwidth=dram, used=used, total=whole)
    yield _labelled(gpu.name, f"{_bar(gpu.busy or 0.0)} {worded(said)}")
    board = say(
        "live.gpu_board",
        power=_amount(gpu.power, 0),
        limit=_amount(gpu.power_limit, 0),
        temperature=_amount(gpu.temperature, 0),
        clock=_amount(None if gpu.clock is None else gpu.clock / 1e6, 0),
        most=_amount(None if gpu.clock_max is None else gpu.clock_max / 1e6, 0),
        received=short_size(gpu.pcie_received),
        sent=short_size(gpu.pcie_sent),
    )
    yield _labelled("", worded(board))


def _table(view: View, choice: Selection, width: int, height: int) -> Iterator[Text]:
    """The processes, around the chosen one where not all have room."""
    shown, chosen = chosen_processes(choice, view), selected(choice, view)
    columns = columns_of_processes(view, width)
    if choice.filter:
        said = say("live.filtered", text=clean(choice.filter), shown=len(shown), all_of_them=len(view.processes))
        yield _text(worded(said), "yellow")
        height -= 1
    yield _header(columns, choice.sort)
    place = shown.index(chosen) if chosen is not None else 0
    first = max(0, min(place - (height - 1) // 2, len(shown) - (height - 1)))
    for process in shown[first : first + height - 1]:
        yield _text(row(columns, process), "reverse" if process is chosen else "")


def _header(columns: Iterable[Column], sort: str) -> Text:
    line = _text("")
    for column in columns:
        line.append(column.title(), "bold underline" if column.name == sort else "bold")
        line.append(" ")
    return line


def _process(view: View, choice: Selection, width: int) -> Iterator[Text]:
    """What one process does."""
    process = next((one for one in view.processes if one.pid == choice.pid), None)
    if process is None:
        yield _text(worded(say("live.process_gone", pid=choice.pid or 0)), "yellow")
        return
    role = live_words().ROLES[process.role] + ("" if process.rank is None else f" {process.rank}")
    yield _heading(worded(say("live.process", role=role, pid=process.pid, command=clean(process.command))))
    yield _text("")
    columns = columns_of_processes(view, width)
    yield _header(columns, "")
    yield _text(row(columns, process))
    yield from _account(view, process)
    yield _text("")
    yield _heading(live_words().THREADS)
    of_threads = columns_of_threads(width)
    yield _header(of_threads, "")
    for thread in process.threads:
        yield _text(row(of_threads, thread))


def _account(view: View, process: ProcessView) -> Iterator[Text]:
    """Of a trainer, where its time goes and in which phases."""
    ranks = () if view.diagnosis is None else view.diagnosis.ranks
    rank = next((rank for rank in ranks if rank["pid"] == process.pid), None)
    if rank is None:
        return
    yield _text("")
    yield _heading(live_words().SHARES)
    for part in rank["breakdown"][:_CAUSES]:
        yield _text(f"{_bar(part['share'])} {percent(part['share']):>4} {cause_title(part['cause'])}")
    yield _text("")
    yield _heading(live_words().PHASES)
    for phase, share in list(rank.get("phases", {}).items())[:_CAUSES]:
        yield _text(f"{_bar(share)} {percent(share):>4} {clean(worded(phase))}")


def _findings(view: View, known: Outline | None, width: int) -> Iterator[Text]:
    """The diagnosis so far, in words."""
    yield from _verdict(view, known, width)
    if known is None:
        return
    yield from _wrapped(known.summary, width, 0)
    yield _text("")
    yield _heading(live_words().FINDINGS)
    for card in known.cards:
        gain = f", {card.gain}" if card.gain else ""
        yield _text(f"{card.share:>4} {card.title}{gain}", "bold")
        yield from _wrapped(card.summary, width, 5)
        for change in card.changes:
            yield _text(f"     - {change.title}", "green")
    yield _text("")
    yield _heading(live_words().NOT_EXAMINED)
    for probe, reason, _ in known.not_examined:
        yield from _wrapped(f"{probe}: {reason}", width, 0)


def _wrapped(text: str, width: int, indent: int, style: str = "") -> Iterator[Text]:
    for line in lines_of(text, max(20, width - indent)):
        yield _text(" " * indent + line, style)


def _help() -> Iterator[Text]:
    yield _heading(live_words().HELP)
    for key, does in live_words().KEYS:
        yield _text(f"  {key:<36} {does}")


def _share(fraction: float | None) -> str:
    return "-" if fraction is None else percent(fraction)


def _amount(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:.{places}f}"
