"""What is said of a job on several hosts."""


def on(*, host: str, reason: str) -> str:
    return f"{host}：{reason}"


def unseen(*, ranks: tuple[int, ...], of: int) -> str:
    named = "、".join(map(str, ranks[:8])) + (f" 等 {len(ranks)} 个" if len(ranks) > 8 else "")
    return f"{of} 个 rank 中，rank {named} 没有被观测：其他 rank 在等它们做什么，无从得知。"


def watch_all() -> str:
    return "在作业的每台主机上同时运行 perfdoctor attach --job --gather FOLDER"


def clock_unknown(*, names: tuple[str, ...]) -> str:
    return (
        f"{'、'.join(names)} 的时钟与第一台主机相差多少，取自系统时间：看到结束的集合通信太少，或者各训练步太相似，"
        "无法核对。如果时钟相差超过一个训练步，等待就会归到其他 rank 在另一时刻所做的事上。"
    )


def keep_clocks() -> str:
    return "用 NTP 或 PTP 保持各主机的时钟一致，或者观测更长时间"
