"""What `perfdoctor ps` and `perfdoctor check` say."""

HEADINGS = ("PID", "用户", "RANK 数", "WORKER 数", "GPU", "时长", "CPU", "内存", "步/s", "命令")
IDLE = "空闲"
NO_GPU = "无"
CHECKED = {"probe": "探针", "state": "", "reason": "原因", "enable": "如何启用", "again": "同上"}
STATES = {"works": "可用", "in part": "部分", "no": "不可用"}


def unread(*, processes: int, reason: str) -> str:
    missing = f"有 {processes} 个进程不允许读取，其中的作业没有列在这里。" if processes else ""
    return f"{missing}{reason}"


def to_see(*, enable: str) -> str:
    return f"要看到它们：{enable}"


def none_found(*, some_unread: bool) -> str:
    of_which = "允许读取的" if some_unread else ""
    return f"这台主机上没有训练作业：没有{of_which}进程加载了 PyTorch。"


def family(*, processes: int, torch: int, names: str) -> str:
    return f"{processes} 个进程中有 {torch} 个加载了 PyTorch：{names}。"


def to_enable(*, enable: str) -> str:
    return f"如何启用：{enable}"


def steps() -> str:
    return "`attach --steps` 可以对它的训练步计数，如果这一项可用："


def ways() -> str:
    return "`attach --trace` 采用其中第一个可用的："
