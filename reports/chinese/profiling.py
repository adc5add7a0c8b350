"""A profiler or a trace function of the job's own that was left on."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix, percent


def record_few_steps(*, share: float) -> Fix:
    return fix(
        "让 torch.profiler 只记录几个训练步",
        f"整理和写出它所记录的内容占用 {percent(share)} 的时间；此外，记录每个算子还会拖慢所有训练步。",
    )


def stop_tracing(*, line: str, share: float) -> Fix:
    return fix(
        "运行时去掉跟踪函数",
        f"{line} 出现在各处库代码之下的调用栈中，而这些代码并不调用它：是 Python 在每一行或每次调用时调用它"
        f"（sys.settrace、sys.setprofile）。它占用 {percent(share)} 的时间，此外还会拖慢所有 Python 代码。",
    )


def stop_tracing_memory(*, share: float) -> Fix:
    return fix(
        "运行时关掉 tracemalloc",
        f"它占 {percent(share)} 的时间：Python 每创建一个对象，它都要记下内存是在哪里申请的。它是用来查找内存泄漏的。",
    )
