"""分布在各 rank 上的专家、嵌入表或序列：激活由每个 rank 发给其他每个 rank（all-to-all）。"""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix


def activations() -> str:
    return "把激活发给需要它们的 rank（all-to-all）"


def small_activations() -> str:
    return "把小块激活发给需要它们的 rank（all-to-all）"


def within_host(*, ranks: int, trains: bool) -> Fix:
    return fix(
        "让 all-to-all 留在每台主机内部",
        "分布在所有 rank 上的专家、嵌入表或序列在每一层都要把大部分激活发往其他主机，而且无法掩盖。"
        "只分布在同一台主机的 rank 上时，激活就留在主机内部；这时每台主机都有全部的专家、表或序列。",
    )


def smaller_groups(*, world: int, trains: bool) -> Fix:
    return fix(
        "把专家、嵌入表或序列分给更少的 rank",
        "每个 rank 留下自己需要的那部分激活，其余的都要发出：分担的 rank 越少，要发的就越少。"
        "每个 rank 要有内存放下更多的专家、表或序列。",
    )


def compute_meanwhile() -> Fix:
    return fix(
        "在发送激活的同时计算别的",
        "不需要正在发送的数据的部分可以同时计算：共享的专家或层，或者批次的另一半。",
    )
