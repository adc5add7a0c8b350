"""What is for debugging, and was left on: profilers, trace functions, debuggers, checks, variables."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix, percent

_DEBUGGING = {
    "TORCH_DISTRIBUTED_DEBUG": "它的 DETAIL 级别会让所有 rank 互相核对每个集合通信。",
    "PYTHONDEVMODE": "解释器会因此在每一步检查内存、警告等等。",
    "PYTHONMALLOC": "Python 会因此在每块内存前后做检查，大多还改用更慢的分配器。",
    "PYTHONTRACEMALLOC": "Python 的每次内存分配都会因此被跟踪。",
    "PYTORCH_JIT_LOG_LEVEL": "编译器写日志会增加每次调用的开销。",
}


def no_collective_checks() -> Fix:
    return fix(
        "取消设置 TORCH_DISTRIBUTED_DEBUG",
        f"{_DEBUGGING['TORCH_DISTRIBUTED_DEBUG']}每次交换之前，它们先互相告知要做什么并等待：每次 2 到 3 毫秒。",
    )


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


def stop_tracer(*, tracer: str, share: float) -> Fix:
    return fix(
        f"不在 {tracer} 下运行",
        f"主线程有 {percent(share)} 的时间被 {tracer} 暂停：它要查看每一次系统调用（ptrace）。",
    )


def stop_tracing_memory(*, share: float) -> Fix:
    return fix(
        "运行时关掉 tracemalloc",
        f"它占 {percent(share)} 的时间：Python 每创建一个对象，它都要记下内存是在哪里申请的。它是用来查找内存泄漏的。",
    )


def no_memory_metrics(*, share: float) -> Fix:
    return fix(
        "训练时不用 transformers Trainer 的内存统计",
        f"它由一个不停查询的线程来测量，该线程在 {percent(share)} 的时间里占着训练线程需要的 GIL。",
    )


def debugging(*, name: str) -> str:
    return _DEBUGGING[name]


def no_anomaly_detection() -> Fix:
    return fix(
        "关闭异常检测",
        "程序一直在格式化 traceback：autograd 的异常检测会对前向传播的每个算子这样做，还会在每个梯度中查找 NaN。",
    )


def stop_watching(*, watcher: str) -> Fix:
    return fix(
        f"不在 {watcher} 下运行",
        f"调用栈上有它的栈帧：{watcher} 监视 Python 的每次调用或每一行，其开销超过大多数调用本身。",
    )
