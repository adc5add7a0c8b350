"""What a verdict says beside its finding, and why there is none."""

from perfdoctor.reports.shared_words import first_ranks


def most(*, cause: str) -> str:
    return f"大部分时间花在{cause}上。"


def confirmed(*, verdict: str, saved: float, more: bool) -> str:
    text = f"{verdict}试验证实了这一点：反复使用一个留在内存中的批次时，每个训练步的耗时减少 {saved:.0%}。"
    return f"{text}减少得更多，是因为准备输入数据也会拖慢其余部分。" if more else text


def doubted(*, verdict: str, saved: float) -> str:
    less = f"只减少了 {saved:.0%}" if saved > 0 else "并没有减少"
    return f"{verdict}但在试验中，反复使用一个留在内存中的批次时，每个训练步的耗时{less}。"


def unattributed() -> str:
    return "有太多时间无法归因，因此无法指出原因。"


def late_rank(*, rank: int, waits: float) -> str:
    return (
        f"rank {rank} 总是迟到：其他 rank 有 {waits:.0%} 的时间在等它。"
        "它在此期间做了什么，trace 中没有记录：既没有算子，也没有 GPU 上的工作。"
    )


def slow_rank(*, rank: int, slowdown: float) -> str:
    return f"rank {rank} 的计算比其他 rank 慢，所有其他 rank 都在等它{_if_equal(slowdown)}"


def heavy_stage(*, stage: int, ranks: tuple[int, ...], slowdown: float) -> str:
    named = first_ranks(ranks, "、", "……")
    return f"流水线阶段 {stage} 的工作量比其他阶段大（rank {named}）{_if_equal(slowdown)}"


def changing_ranks(*, slowdown: float, stages: bool) -> str:
    if stages:
        return f"流水线的各个阶段轮流互相等待{_if_equal(slowdown)}"
    return f"各 rank 的工作量不均，而且最慢的 rank 并不固定{_if_equal(slowdown)}"


def _if_equal(slowdown: float) -> str:
    return f"：如果各 rank 均衡，训练步的速度将是现在的 {slowdown:.2f} 倍。"


def nothing_seen(*, job_ended: bool) -> str:
    return f"在观测到任何数据之前，{'作业' if job_ended else '观测'}就结束了。"


def no_torch() -> str:
    return "作业的所有进程都没有加载 PyTorch，因此没有可观测的训练步。"


def no_trainer() -> str:
    return "没有看到作业中有进程在训练。"


def too_brief() -> str:
    return "观测作业的时间太短，无法判断；请延长观测时间（--duration），或增加步数（steps=）。"


def start_or_end(*, ended: bool) -> str:
    seen = "已经停止训练" if ended else "还没有开始训练"
    return f"观测时作业{seen}，或训练的时间太短，无法判断：作业的启动和收尾都不算训练。"
