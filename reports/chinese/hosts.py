"""What is said of a job on several hosts."""


def watch_all() -> str:
    return "在作业的每台主机上同时运行 perfdoctor attach --job --gather FOLDER"


def clock_unknown(*, names: tuple[str, ...]) -> str:
    return (
        f"{'、'.join(names)} 的时钟与第一台主机相差多少，取自系统时间：看到结束的集合通信太少，或者各训练步太相似，"
        "无法核对。如果时钟相差超过一个训练步，等待就会归到其他 rank 在另一时刻所做的事上。"
    )


def keep_clocks() -> str:
    return "用 NTP 或 PTP 保持各主机的时钟一致，或者观测更长时间"
