"""What a report of a treatment says: what was gained, how that was measured, and what its parts are called."""

_OUTCOMES = {
    "faster": "更快",
    "slower": "更慢",
    "no difference": "没有差别",
    "undecided": "无法判定",
    "failed": "失败",
    "trains differently": "训练结果不同",
    "too little memory": "内存不足",
    "not tried": "未尝试",
}
_STEPS = {"optimizer step": "优化器的一步", "batch": "一个批次", "step": "一步"}
# 按改动是否在步与步之间进行：每次尝试叫什么，以及怎样给它更多时间。
_NAMES = {False: "运行", True: "分段"}
_MORE = {False: "--minutes", True: "treat_minutes"}


def faster(*, factor: str, title: str) -> str:
    return f"实测加速 {factor}：{title}"


def nothing_tried() -> str:
    return "没有尝试任何改动"


def not_confirmed(*, factor: str, title: str) -> str:
    return f"尝试时加速 {factor}，但未能确认：{title}"


def nothing_helps() -> str:
    return "尝试过的改动都没有让这个作业更快"


def nothing_clear() -> str:
    return "没有哪个改动明显更快"


def interval(*, low: str, high: str, runs: int, controls: int, training: str, inside: bool) -> str:
    name = _NAMES[inside]
    return (
        f"以 97% 的置信度在 {low} 到 {high} 之间，依据是专门为此进行的 {runs} 次{name}"
        f"和不带改动的 {controls} 次{name}；{training}。"
    )


def nothing_to_try(*, inside: bool) -> str:
    if inside:
        return "步与步之间可以进行的改动，都不针对占用这个作业时间的原因。"
    return "在不改动作业文件的前提下可以尝试的改动，都不针对占用它时间的原因。"


def unclear(*, inside: bool) -> str:
    return f"后续{_NAMES[inside]}的结果不明确，或没有时间再做。增加时间会有帮助：{_MORE[inside]}。"


def too_wide(*, inside: bool) -> str:
    return f"有些区间太宽。增加时间（{_MORE[inside]}）和换一台没有其他负载的机器会有帮助。"


def code_is_next() -> str:
    return "诊断中的发现给出了对代码本身的改动。"


def interrupted(*, inside: bool) -> str:
    if inside:
        return "在全部尝试完之前，训练没有再进行下去。"
    return "在全部尝试完之前被中断。"


def bit_identical() -> str:
    return "损失逐位相同"


def within_noise() -> str:
    return "损失在噪声范围内相同"


def other_losses() -> str:
    return "损失不同"


def no_losses() -> str:
    return "没有看到损失"


def untouched() -> str:
    return "计算的内容不变"


def rounded() -> str:
    return "结果的舍入可能不同"


def not_asked(*, titles: tuple[str, ...]) -> str:
    return f'舍入可能不同，只有 treat="within noise" 才会尝试：{"；".join(titles)}。'


def by_hand(*, titles: tuple[str, ...]) -> str:
    return f"另有建议，需要改动你自己的代码：{'；'.join(titles)}。"


def outcome(*, outcome: str) -> str:
    return _OUTCOMES.get(outcome, outcome)


def at_most(*, factor: str) -> str:
    return f"最多 {factor}".rstrip()


def first_step_after(*, time: str) -> str:
    return f"第一步在 {time} 之后完成。"


def nothing_to_keep() -> str:
    return "只显示最多能有多少收益；没有可以保留的改动。"


def runs(*, factor: str, runs: int, inside: bool) -> str:
    return f"{factor}（{runs} 次{_NAMES[inside]}）"


def runs_between(*, factor: str, low: str, high: str, runs: int, inside: bool) -> str:
    return f"{factor}（{low} 到 {high}，{runs} 次{_NAMES[inside]}）"


def together(*, titles: tuple[str, ...]) -> str:
    return "，并且".join(titles)


def as_it_is() -> str:
    return "原样的作业"


def sentence(*, text: str) -> str:
    return f"{text}。"


def diagnosed(*, headline: str) -> str:
    return f"对原样作业的诊断：{headline}"


def tried() -> str:
    return "尝试过的改动"


def combined() -> str:
    return "组合改动，与之前最好的结果对比"


def no_time_for(*, titles: tuple[str, ...], inside: bool) -> str:
    return f"没有时间尝试：{'；'.join(titles)}。增加时间会有帮助：{_MORE[inside]}。"


def permanent() -> str:
    return "如何长期保留"


def patch() -> str:
    return "作为补丁"


def diagnosis() -> str:
    return "诊断"


def cost() -> str:
    return "这次试验的开销"


def change() -> str:
    return "改动"


def predicted() -> str:
    return "预计"


def measured() -> str:
    return "实测"


def verdict() -> str:
    return "结论"


def step_is(*, time: str, what: str) -> str:
    return f"{time}（{_STEPS.get(what, what)}）"


def control_runs(*, inside: bool) -> str:
    return f"不带改动的{_NAMES[inside]}次数"


def they_differ() -> str:
    return "它们之间的差异"


def deviation(*, spread: str) -> str:
    return f"{spread}（标准差）"


def steps_of_run(*, inside: bool) -> str:
    return "每个分段至少的步数" if inside else "每次运行的步数"


def after_warmup(*, steps: str, warmup: str) -> str:
    return f"{steps}，之前的 {warmup} 步不计"


def first_step() -> str:
    return "第一步的耗时"


def memory() -> str:
    return "内存"


def gpu_memory() -> str:
    return "显存"


def losses() -> str:
    return "这些运行的损失"


def deterministic(*, same: bool) -> str:
    return "逐位相同" if same else "不同"


def runs_of_job(*, inside: bool) -> str:
    return "分段的数量" if inside else "作业的运行次数"


def time() -> str:
    return "耗时"


def saves_aside() -> str:
    return "另行存放的保存结果"
