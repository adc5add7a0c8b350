"""The optimizer's step: in one call, compiled, or on the GPU."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix, percent


def fused(*, share: float, gpu: bool, trainer: bool, update: str) -> Fix:
    now = "每个参数组都要运行多个 kernel" if gpu else "每个参数都要运行多个算子"
    return fix("一次调用更新所有参数", f"优化器占用 {percent(share)} 的时间；默认情况下，{now}。")


def several_at_once(*, share: float, update: str) -> Fix:
    return fix(
        "一次调用更新多个参数",
        f"优化器占用 {percent(share)} 的时间，并为每个参数运行若干个算子。"
        "在 CPU 上只需一次调用的融合更新从 PyTorch 2.4 开始提供。",
    )


def larger_passes(*, loop: str) -> Fix:
    return fix(
        "每次更新改用更少、更大的前向和反向传播",
        f"{loop} 处的循环用多次前向和反向传播凑成一次更新，每一次都要为批次的一小部分调用所有算子。"
        "只要损失是平均值、又没有跨批次归一化的层，一次处理整个批次得到的梯度是一样的。",
    )


def sparse_tables(*, share: float, zeros: float) -> Fix:
    of_zeros = f"另有 {percent(zeros)} 花在嵌入表的梯度上，其中除用到的行以外全是零。" if zeros else ""
    return fix(
        "只更新一个批次用到的嵌入表的行",
        f"优化器的运算占 {percent(share)} 的时间：每一步都要遍历所有嵌入表的所有行。{of_zeros}"
        "如果大部分参数在很大的嵌入表里，稀疏梯度会跳过没有用到的行。SparseAdam 没有 weight decay；"
        "SGD 和 Adagrad 可以直接接受稀疏梯度。",
    )


def compiled(*, share: float) -> Fix:
    return fix(
        "编译优化器的 step",
        f"优化器以大量小 kernel 占用 {percent(share)} 的时间，又没有 Adam 那样的融合实现。编译之后只需运行少数几个。",
    )


def on_gpu(*, share: float, used: float | None) -> Fix:
    memory = "" if used is None else f"显存已用 {percent(used)}。"
    return fix(
        "在 GPU 上更新参数",
        f"{percent(share)} 的时间里，优化器的更新在 CPU 上进行，GPU 在等它。"
        f"把它卸载到 CPU 只节省显存，没有别的好处。{memory}",
    )
