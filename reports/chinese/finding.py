"""What every finding says, whatever its cause."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix, percent


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
    text = f"{what}占用了 {percent(share)} 的时间"
    if line:
        text += f"，{'大部分' if most else '主要'}在 {line}"
    elif path:
        text += f"，大部分在 {path}"
    if ranks:
        text += f"；问题出在 rank {'、'.join(map(str, ranks))}"
        text += f"，其他 rank 都在等{'它们' if len(ranks) > 1 else '它'}" if awaited else ""
    return "".join(["；".join([text, *clauses]) + "。", *remarks])


def once(*, seconds: float, watched: float) -> str:
    return (
        f"在观察的 {watched:.3g} 秒里，它出现了 {seconds:.3g} 秒，之后没有再出现："
        "它多久出现一次、因而在整个训练中占多少，并未看到；观察更久便知。"
    )


def after_input(*, busy: float) -> str:
    return (
        f"worker 进程有 {percent(busy)} 的时间都在工作：这里省下的时间，训练进程会用来等待批次。"
        "等输入跟得上之后，这项改动才见效。"
    )


def spent_on(*, cause: str) -> str:
    return f"用于{cause}的墙钟时间"


def where() -> str:
    return "主要位置"


def library_call() -> str:
    return "其中占用很多的库调用"


def done_alone(*, rank: int) -> str:
    return f"rank {rank} 做而其他 rank 不做的事"


def on_what() -> str:
    return "主要对象"


def operator() -> str:
    return "占用最多的算子"


def kernel() -> str:
    return "占用最多的 kernel"


def part(*, what: str, part: float) -> str:
    return f"{what}（{percent(part)}）"


def function(*, line: str, part: float, alone: float | None) -> str:
    by_itself = "" if alone is None or percent(alone) == percent(part) else f"；这一行 {percent(alone)}"
    return f"{line}（{percent(part)}{by_itself}）"


def unset(*, name: str, value: str, why: str) -> Fix:
    return fix(f"取消设置 {name}", f"这个作业把它设成了 {value}。{why}")
