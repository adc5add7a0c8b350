"""等待没有被观测的 rank，或不知道是哪个的 rank。"""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix, percent


def unwatched_ranks() -> str:
    return "等待没有被观测的 rank"


def unwatched_ranks_refuted() -> str:
    return "观测所有 rank：如果没有任何一个迟到，占用时间的就是交换本身。"


def unknown_rank() -> str:
    return "等待不知道是哪个的 rank"


def unknown_rank_refuted() -> str:
    return "查看每个 rank 何时进入集合通信：如果它们同时到达，占用时间的就是交换本身。"


def find_late_rank(*, share: float, world: int, traced: bool) -> Fix:
    return fix(
        "找出是哪个 rank 迟到",
        f"全部 {world} 个 rank 都被观测了，但有 {percent(share)} 的时间，一些 rank 等在其他 rank 的 trace 里没有找到、"
        "或在它们之前就开始的集合通信中：不知道是谁迟到。"
        if traced
        else f"全部 {world} 个 rank 都被观测了，它们有 {percent(share)} 的时间在集合通信中等待："
        "可能交换本身就慢，也可能每次都有一个 rank 迟到。",
    )


def watch_all(*, share: float, seen: int, world: int) -> Fix:
    watched = f"{world} 个 rank 中的 {seen} 个" if world > seen else f"{seen} 个 rank"
    return fix(
        "也观测其他 rank",
        f"被观测的 rank 有 {percent(share)} 的时间在集合通信中等待，而被观测的是 {watched}："
        "没有被观测的 rank 可能迟到了，也可能交换本身就慢。",
    )
