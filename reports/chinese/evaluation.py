"""Passes without gradients: evaluations that take a good part of the training's time."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix, percent


def passes() -> str:
    return "不训练、只调用模型（评估）"


def passes_refuted() -> str:
    return (
        "去掉评估跑几百步：如果速度不变，时间就不是它占用的。"
        "如果训练需要这些前向传播的结果（rollout、教师模型的输出），减少次数并不能解决问题。"
    )


def less_often(*, share: float, line: str | None, times: int, bearable: float, loop: str, when: str) -> Fix:
    where = f"（{line}）" if line else ""
    return fix(
        "降低评估频率",
        f"这些前向传播{where}不更新任何参数，连同取批次却占用 {percent(share)} 的时间；"
        f"把评估之间的步数增加到 {times} 倍，就只剩 {percent(bearable)}。",
    )


def subset(*, times: int, loop: str) -> Fix:
    return fix(
        "只在一部分数据上评估",
        f"训练过程中，每 {times} 个样本取一个、并且总是同一批，就足以看出趋势；只有最终结果才需要完整的数据集。"
        "自己生成输入的评估则少生成一些。",
    )


def larger_batches(*, loader: bool) -> Fix:
    return fix(
        "评估时用更大的批次",
        "没有梯度就不保留激活，训练一步所用的显存可以放下几倍大的批次，每个样本调用的算子也更少。",
    )


def inference_mode(*, line: str | None) -> Fix:
    return fix(
        "在推理模式下评估",
        "这样 autograd 什么都不记录，也不维护张量的版本计数，而 torch.no_grad 仍会维护。"
        "如果现在评估时开着梯度，还能省下全部激活所占的显存。",
    )
