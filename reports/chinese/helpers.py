"""Processes that a trainer asks by itself: environments, or a pool of its own."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix


def ask_together(*, helpers: int, at_once: float | None) -> Fix:
    now = "" if at_once is None else f"训练进程等待时，平均只有 {at_once:.1f} 个在工作。"
    return fix(
        f"先向全部 {helpers} 个辅助进程发出请求，再等待回答",
        f"单独等待每个回答，就要切换到辅助进程再切换回来，而其他进程在此期间都不工作。{now}",
    )


def ask_ahead() -> Fix:
    return fix("在训练这一批之前先请求下一批", "这样辅助进程在训练进程计算时工作，而不是在它等待时。")


def larger_requests() -> Fix:
    return fix(
        "让每个辅助进程一次请求做更多的事",
        "每个请求和每个回答都要唤醒一个进程，并被序列化和复制：每个辅助进程负责几个环境或样本，这些代价只付一次。"
        "大数组最好放在共享内存里。",
    )


def send_arrays() -> Fix:
    return fix(
        "传递数组，而不是列表和对象",
        "每个数、元组或对象都要在一端序列化、在另一端重新建立；数组则原样复制。",
    )


def step_together(*, line: str | None) -> Fix:
    place = f"大部分在 {line}。" if line else ""
    return fix(
        "让多个环境同时步进",
        f"环境在训练进程中逐个步进，模型在一旁等待。{place}"
        "把环境复制到各自的进程中，它们就能同时步进，模型一次调用就能选出它们的全部动作。",
    )
