"""Reports of two runs side by side: the answer, how sure it is, and what forbids it; names of facts and headings."""

_NAMES = {
    "world_size": "rank 数",
    "steps": "训练步的依据",
    "settings.on_gpu": "在 GPU 上",
    "level": "依据",
    "perfdoctor": "perfdoctor",
    "torch": "PyTorch",
    "neighbour_cores": "被他人占用的核",
    "watched_seconds": "观测的秒数",
    "settings.workers": "worker 进程",
}
_FORBIDDEN = {
    "steps": "两次运行中的一步不一定相同，而且性能分析器在每一步中都要占用自己的时间。",
    "world_size": "rank 数不同，一步的工作量也不同。",
    "settings.on_gpu": "它们不是在同一种处理器上运行的。",
}
_PROMISES = {
    "came true": "，实测 {}：预计成立。",
    "less than predicted": "，实测 {}：低于预计。",
    "more than predicted": "，实测 {}：高于预计。",
    "not seen": "，没有看到收益：要么没有做这个改动，要么它没有帮助。",
    "unknown": "；实测 {}，不确定性太大，无法判断。",
}
_STEP_IS = {
    "marked": "有标记",
    "traced": "由 trace 得出",
    "optimizer steps": "优化器的步，从外部计数",
    "backward passes": "反向传播的次数，从外部计数",
}
_COSTS = {
    "faster": "减少",
    "slower": "增加",
    "no difference can be shown": "看不出差别",
    "unknown": "观测太少，无法判断",
}


def faster(*, factor: str, before: str, after: str) -> str:
    return f"加速 {factor}：每步从 {before} 变为 {after}"


def slower(*, longer: str, before: str, after: str) -> str:
    return f"变慢 {longer}：每步从 {before} 变为 {after}"


def same(*, before: str, after: str) -> str:
    return f"看不出差别：每步之前 {before}，之后 {after}"


def unsure(*, before: str, after: str) -> str:
    return f"无法判断有多大把握：每步从 {before} 变为 {after}"


def not_comparable() -> str:
    return "两者的速度无法比较"


def unknown_pace() -> str:
    return "速度未知"


def and_share(*, said: str, cause: str, before: str, after: str) -> str:
    return f"{said}；{cause}占用的时间从 {before} 变为 {after}"


def interval(*, low: str, high: str, confidence: str, floor: str, longer: bool, passes: bool) -> str:
    said = (
        f"加速比以 {confidence} 的置信度在 {low} 到 {high} 之间。噪声下限是 {floor}："
        "更小的差别无法与这两次运行自身的波动区分。"
    )
    said += "在安静的机器上运行更久可能会降低它。" if longer else ""
    return said + ("这里的一步是一次反向传播：没有看到训练的一步包含几次反向传播。" if passes else "")


def no_interval() -> str:
    return (
        "其中一份报告没有说明运行的波动：它由较旧的 perfdoctor 生成，或看到的训练步少于两个。"
        "可以用记录重新生成：perfdoctor report RECORDING --json FILE.json"
    )


def too_little() -> str:
    return "观测太少，无法判断：这两次运行自身的波动就可能掩盖两倍或一半的速度。在安静的机器上观测更久才能看得更清楚。"


def forbidden(*, what: str, name: str, before: str, after: str) -> str:
    return f"{name}：之前 {before}，之后 {after}。{_FORBIDDEN[what]}"


def only_shares(*, forbidden: tuple[str, ...]) -> str:
    return f"{''.join(forbidden)}只比较时间占比。"


def no_steps(*, source: str | None, implied: str | None) -> str:
    guess = "" if implied is None else f"如果模型自身的计算耗时不变，则为 {implied}。"
    return (
        f"{source or '两次运行'}都没有标记、计数或 trace 过的训练步：没有看到作业是否变快。"
        "只比较时间占比：一个下降，其他就上升，无论每步耗时多少。"
        f"两次运行都使用 `attach --steps` 或 diagnose()，或都有 trace，就能知道速度。{guess}"
    )


def explaining(*, differences: tuple[tuple[str, str, str], ...]) -> str:
    listed = "；".join(f"{name}（之前 {before}，之后 {after}）" for name, before, after in differences)
    return f"两次运行的这些方面不同，其本身就可能解释差别：{listed}。"


def warnings(*, said: tuple[str, ...]) -> str:
    return "".join(said)


def other_work() -> str:
    return (
        "两次运行的启动命令不同：如果它改变了一步的工作量，例如用了更大的 batch，"
        "每步耗时就看不出哪次运行更快；应比较每秒处理的样本数。"
    )


def cannot_tell(*, allowed: str) -> str:
    return f"无法判断每步是否超过允许的范围；允许变慢 {allowed}。"


def hidden_by_noise(*, most: str, floor: str, allowed: str) -> str:
    return (
        f"无法判断每步是否超过允许的范围：每步可能变慢 {most}，允许变慢 {allowed}，"
        f"而小于 {floor} 的差别无法与这两次运行自身的波动区分。"
        "在安静的机器上运行更久，或轮流运行并比较几对，才能判断。"
    )


def regression(*, least: str, most: str, allowed: str) -> str:
    return f"退化：每步变慢 {least} 到 {most}，而允许的是 {allowed}。"


def unsure_regression(*, most: str, allowed: str) -> str:
    return f"没有证实退化：每步可能变慢 {most}，但不能确定；允许的是 {allowed}。"


def no_regression(*, most: str | None, allowed: str) -> str:
    longer = "没有变慢" if most is None else f"最多变慢 {most}"
    return f"没有退化：每步{longer}，而允许的是 {allowed}。"


def promise(*, fix: str, predicted: str, measured: str, outcome: str) -> str:
    return f"对于“{fix}”，之前的运行预计 {predicted}" + _PROMISES[outcome].format(measured)


def promise_unseen(*, fix: str, predicted: str) -> str:
    return f"对于“{fix}”，之前的运行预计 {predicted}；没有看到它是否成立，因为速度无法比较。"


def promise_in_samples(*, fix: str, predicted: str) -> str:
    return (
        f"对于“{fix}”，之前的运行预计每秒样本数变为 {predicted}。这个改动会改变一步的工作量："
        "从每步耗时看不出预计是否成立。"
    )


def between(*, value: str, low: str, high: str) -> str:
    return f"{value}（{low} 到 {high}）"


def from_to(*, low: str, high: str) -> str:
    return f"{low} 到 {high}"


def points(*, change: str) -> str:
    return f"{change} 个百分点"


def costs(*, answer: str) -> str:
    return _COSTS.get(answer, answer)


def name(*, what: str, label: str) -> str:
    return _NAMES.get(what, label)


def step_is(*, what: str) -> str:
    return _STEP_IS.get(what, what)


def nothing() -> str:
    return "无"


def unknown() -> str:
    return "未知"


def no_cause() -> str:
    return "没有指出"


def time_before() -> str:
    return "每步耗时，之前"


def time_after() -> str:
    return "每步耗时，之后"


def pace_before() -> str:
    return "每秒步数，之前"


def pace_after() -> str:
    return "每秒步数，之后"


def speedup() -> str:
    return "加速比"


def noise_floor() -> str:
    return "噪声下限"


def time_goes(*, per_step: bool) -> str:
    return f"时间去向（{'每步耗时' if per_step else '墙钟时间占比'}）"


def predicted_gain() -> str:
    return "预计的收益"


def others() -> str:
    return "其他不同之处"


def dots() -> str:
    return "两次运行各时段的每步耗时：一个点是一个时段，竖线是平均值。"


def dots_in_words(*, name: str, mean: str, least: str, most: str) -> str:
    return f"{name}：平均 {mean}，{least} 到 {most}"


def footer() -> str:
    return "这个页面不运行脚本，也不加载任何内容。"


def runs() -> str:
    return "两次运行"


def cause() -> str:
    return "原因"


def before() -> str:
    return "之前"


def after() -> str:
    return "之后"


def change() -> str:
    return "变化"


def answer() -> str:
    return "结论"


def file() -> str:
    return "文件"


def kind() -> str:
    return "类型"


def watched() -> str:
    return "观测时长"


def steps() -> str:
    return "训练步"


def level() -> str:
    return "依据"


def first_cause() -> str:
    return "首要原因"


def verdict() -> str:
    return "结论"
