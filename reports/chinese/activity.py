"""What cannot be drawn of a job, and why."""


def no_tracks() -> str:
    return "没有画出训练进程和 worker 进程随时间的活动：没有采样到它们的任何线程。"


def no_code() -> str:
    return "没有火焰图：没有看到训练进程的 Python 调用栈。"


def no_steps() -> str:
    return (
        "没有单个训练步的时间，也没有通常的与最慢的训练步的对照：没有看到训练步在哪里结束。"
        "`attach --steps` 从外部对它们计数；在训练循环中使用 `with diagnose():` 可以标记它们及其各阶段。"
    )


def workers_left_out(*, count: int) -> str:
    return f"DataLoader 的 worker 进程中画出了观测时间最长的；还有 {count} 个没有画出。"


def of_traces() -> str:
    return "trace 中没有线程和调用栈的采样：没有画出随时间的变化和代码中的位置。"
