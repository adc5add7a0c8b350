"""What was not examined, and what would enable it."""

from perfdoctor.reports.wording import worded


def watch_longer() -> str:
    return "用 --duration 延长观测时间，占比就有同样多的采样点作为依据"


def none_kept() -> str:
    return "在留下任何调用栈之前，观测就结束了"


def no_stacks(*, reason: str) -> str:
    return (
        f"{worded(reason).rstrip('.。')}。没有调用栈，就不知道 Python 代码是在准备输入数据还是在调用模型，"
        "也不知道在哪些行；这部分时间仍未归因。"
    )


def no_code(*, reason: str) -> str:
    return (
        f"{worded(reason).rstrip('.。')}。没有机器码的采样，算子的调用看起来就像运算："
        "由许多小算子组成的作业会显得没有瓶颈。"
    )


def no_names() -> str:
    return "PyTorch 各个库中的函数没有名称：无法打开它们的文件，或者 perfdoctor 被强行终止"


def open_files() -> str:
    return "以 root 身份运行 perfdoctor，或者在作业所在的环境（它的容器）中运行，并让它自行结束"


def gpu_untraced(*, tried: bool) -> str:
    rest = (
        "在这一代 GPU 上，最初 19 个作业中有 14 个的结论一次就判断正确，因此置信度最高为 70%。"
        if tried
        else "这些估计依据公开资料和模拟器，尚未在这类 GPU 上验证，因此置信度最高为 60%。"
    )
    return "从外部看不到 GPU 运行了哪些 kernel、在等待什么：只能根据主机的等待方式和驱动的计数器来估计。" + rest


def gpu_use_unread() -> str:
    return (
        "无法读取作业所用某块 GPU 的繁忙程度；这里根据主机等待它的时间来推断。"
        "主机因其他原因受阻仍能看到，但 GPU 是在工作还是空闲只是估计，与此有关的结论置信度最高为 45%。"
    )


def trace_it() -> str:
    return (
        "perfdoctor attach PID --trace：用 torch.profiler 跑几步，"
        "就能看到每个 kernel、拷贝、启动和等待，以及 GPU 为何空闲"
    )


def around_training(*, before_s: float, after_s: float) -> str:
    before = f"训练开始前的 {before_s:.3g} 秒" if before_s > 0 else ""
    after = f"训练结束后的 {after_s:.3g} 秒" if after_s > 0 else ""
    return f"{'和'.join(filter(None, (before, after)))}也在观测之内：它们不计入任何占比。"


def watch_training() -> str:
    return "在作业训练时再 attach；py-spy record -- python ... 可以显示启动过程的耗时"


def between_steps(*, seconds: float, share: float, rank: int | None, line: str | None) -> str:
    of_rank = "" if rank is None else f"（rank {rank}）"
    most = f"，大部分在 {line}" if line else ""
    return (
        f"有 {seconds:.3g} 秒{of_rank}，即观测时间的 {share:.0%}，花在训练步之间，例如验证{most}。"
        "这些时间不计入任何训练步，也不计入任何占比。"
    )


def validate_less() -> str:
    return "如果太多，就降低验证频率或减少验证数据；`perfdoctor attach PID` 会计入全部时间"


def several_in_one(*, passes: int) -> str:
    return (
        f"每个 `with diagnose():` 里约有 {passes} 次反向传播，又没有 torch 的 DataLoader 或优化器来划分训练步："
        "整段算作一步。占比不受影响。"
    )


def one_step_each() -> str:
    return "让 `with` 只包住一个训练步，或在每步结束处调用它所返回对象的 step()"


def rule_failed(*, name: str, value: str, error: str, text: str) -> str:
    return f"规则 {name}（{value}）出错：{error}{f'：{text}' if text else ''}。"


def repair_rule() -> str:
    return "修复提供它的软件包，或将其卸载。"


def operations_only() -> str:
    return "这张表只有操作，没有主机的行为：操作之间的停顿无法归因。"


def profile_a_rank() -> str:
    return "用 torch.profiler 剖析一个 rank，再用 perfdoctor analyze 分析它的 trace"
