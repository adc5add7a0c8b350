"""共同持有每一层的 rank：张量并行，以及它所交换的数据。"""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix


def activations() -> str:
    return "交换由多个 rank 共同持有的层的激活"


def activations_refuted() -> str:
    return "用一半的样本跑几步：这时激活只有一半大。如果交换用时不变，原因就不是字节数。"


def small_activations() -> str:
    return "交换由多个 rank 共同持有的层的小块激活"


def small_activations_refuted() -> str:
    return "用两倍的样本跑几步：消息数不变。如果交换用时变成两倍，原因就不是消息的数量。"


def split_within_host(*, ranks: int) -> Fix:
    return fix(
        "只在每台主机内部切分层",
        "共同持有一层的 rank（张量并行）在每一层的前向和反向传播中都要交换激活，而且无法掩盖：跨主机时就要等待网络。",
    )


def smaller_groups(*, world: int, trains: bool) -> Fix:
    passes = "在前向和反向传播中都要等待激活，累积梯度也省不掉" if trains else "都要等待激活"
    gradients = "，各组每步只在反向传播的同时交换一次梯度" if trains else ""
    return fix(
        "让更少的 rank 共同持有一层",
        f"每一层{passes}。共同持有一层的 rank 越少，交换就越少；批次在各组之间分开{gradients}。"
        "每个 rank 要有内存放下更大的一部分模型。",
    )


def half_precision(*, trains: bool) -> Fix:
    return fix("用 16 位交换激活", "如果现在是 float32：只需一半的字节，矩阵乘法也用 16 位。")


def larger_batch() -> Fix:
    return fix(
        "让每次交换带上更多样本",
        "无论样本多少，每一层都要等一轮消息：每批样本加倍、批次减半，就只需一半的轮数。",
    )
