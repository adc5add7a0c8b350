"""Functions that other processes run (torch.distributed.rpc)."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix


def waiting() -> str:
    return "等待被远程调用的其他进程回答"


def waiting_refuted() -> str:
    return "让一步什么都不请求，沿用上一步得到的回答：如果每步耗时不变，原因就不是这些调用。"


def one_call(*, line: str | None) -> Fix:
    place = f"这些调用在 {line}。" if line else ""
    return fix(
        "一次调用请求多个张量",
        f"torch.distributed.rpc 的每次调用都要一来一回两条消息，并唤醒两端的线程。{place}"
        "一次调用可以返回一个列表；不需要回答的工作可以在等待回答之前做。",
    )
