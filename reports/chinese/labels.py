"""What reports call their own parts: headings, names of rows, and words between numbers."""

from perfdoctor.messages import Text
from perfdoctor.reports.chinese.units import UNITS

_SEVERITIES = {"high": "严重", "medium": "中等", "low": "轻微", "no bottleneck": "无瓶颈", "unequal ranks": "rank 不均"}
_RESOURCES = {"cpu": "CPU ", "gpu": "GPU ", "io": "I/O ", "communication": "通信"}


def time_goes() -> str:
    return "时间去向"


def rank_by_rank() -> str:
    return "逐个 rank"


def not_examined() -> str:
    return "未检查"


def nothing_left_out() -> str:
    return "没有遗漏。"


def to_enable(*, how: str) -> str:
    return f"启用方法：{how}"


def the_job() -> str:
    return "作业"


def settings() -> str:
    return "设置"


def evidence() -> str:
    return "证据"


def what_to_change() -> str:
    return "如何修改"


def what_refutes() -> str:
    return "什么可以推翻这个结论"


def to_change(*, titles: tuple[str, ...]) -> str:
    return f"可以修改：{'；'.join(titles)}。"


def all_in_files() -> str:
    return "--report FILE.html 和 --json FILE.json 有完整内容，包括次要的发现。"


def straggler() -> str:
    return "掉队"


def severity(*, severity: str) -> str:
    return _SEVERITIES.get(severity, severity)


def no_bottleneck_named() -> str:
    return "未能指出瓶颈：证据不足"


def unequal_ranks() -> str:
    return "各 rank 不均衡，拖慢了这个作业"


def no_bottleneck() -> str:
    return "没有发现瓶颈"


def bottleneck(*, resource: str, title: str) -> str:
    return f"{_RESOURCES[resource]}瓶颈：{title}"


def headline(*, claim: str, share: str, gain: str, beyond: bool, faster: str) -> str:
    how = "做第一项修改后（它还省下别的时间）" if beyond else "修复后"
    more = f"；要比这更快，可以{faster}" if faster else ""
    return f"{claim}，占 {share} 的时间" + (f"，{how}{gain}" if gain else "") + more


def headline_healthy(*, claim: str, share: str, title: str, gain: str, faster: str) -> str:
    return f"{claim}{f'，均衡后{gain}' if gain else ''}：{share} 是{title}{f'；要更快，可以{faster}' if faster else ''}"


def share_of_time() -> str:
    return "墙钟时间占比"


def predicted_speedup() -> str:
    return "修复后的预计加速比"


def confidence() -> str:
    return "置信度"


def straggler_rank() -> str:
    return "掉队 rank"


def rank(*, rank: int) -> str:
    return f"rank {rank}"


def how_known() -> str:
    return "依据"


def cause() -> str:
    return "原因"


def others_wait(*, rank: int) -> str:
    return f"rank {rank} 掉队：其他 rank 都在等它。"


def small_causes(*, count: int, limit: str) -> str:
    return f"另外 {count} 个原因，每个低于 {limit}"


def pid_and_workers(*, pid: int | None, workers: int) -> str:
    return f"pid {pid}，{workers} 个 worker 进程"


def waits_for_ranks(*, share: str, rank: str, others: int) -> str:
    return f"{share} 的时间在等待其他 rank，最久的是等 rank {rank}" if others else f"{share} 的时间在等 rank {rank}"


def late_host(*, host: str) -> str:
    return f"主机 {host} 上的 rank 拖慢了其他 rank：几乎所有等待都是在等它们。"


def late_position(*, position: int) -> str:
    return (
        f"每台主机上位置为 {position}（从 0 数起）的 rank 拖慢了其他 rank：不论在哪台主机上，几乎所有等待都是在等它们。"
    )


def alike() -> str:
    return "时间用法相似的 rank"


def alike_ranks(*, count: int, first: int, waits: str) -> str:
    return f"rank {first}，等待 {waits}" if count == 1 else f"{count} 个与 rank {first} 相似的 rank，等待 {waits}"


def ranks(*, ranks: tuple[int, ...]) -> str:
    return f"rank {'、'.join(map(str, ranks))}"


def times_as_fast(*, least: str, likely: str, most: str) -> str:
    if not least:
        return f"速度可能为原来的 {likely} 倍，最多 {most} 倍" if likely else f"速度最多为原来的 {most} 倍"
    return f"速度为原来的 {most} 倍" if least == most else f"速度为原来的 {least} 到 {most} 倍"


def between(*, least: str, most: str) -> str:
    return f"{least} 到 {most}"


def diagnosis_cost() -> str:
    return "这次诊断的开销"


def its_steps() -> str:
    return "训练步"


def steps_of(*, rank: int, straggler: bool) -> str:
    return f"rank {rank} 的训练步" + ("（掉队）" if straggler else "")


def steps_of_waiting(*, rank: int, waits_for: int) -> str:
    return f"rank {rank} 的训练步（它在等 rank {waits_for}）"


def steps_observed() -> str:
    return "观测的步数"


def steps_counted(*, passes: bool) -> str:
    return "从外部计数的反向传播次数" if passes else "从外部计数的步数"


def steps_traced() -> str:
    return "trace 的步数"


def in_functions() -> str:
    return "在作业自己的函数中"


def of_a_step(*, share: str, line: str) -> str:
    return f"占一步的 {share}：{line}"


def time_per_step() -> str:
    return "每步耗时"


def time_per_pass() -> str:
    return "每次反向传播耗时"


def step_times(*, median: str, mean: str, slow: str) -> str:
    return f"中位数 {median}，平均 {mean}，95% 的步不超过 {slow}"


def a_step(*, time: str) -> str:
    return f"每步 {time}"


def on_device(*, time: str) -> str:
    return f"在设备上 {time}"


def by_itself(*, time: str) -> str:
    return f"单独执行 {time}"


def parts_by_themselves() -> str:
    return "各部分单独执行"


def in_sum(*, time: str, steps: str) -> str:
    return f"每步合计 {time}，共 {steps} 步"


def overlaps(*, share: str) -> str:
    return f"其中 {share} 互相重叠"


def of_that_gc() -> str:
    return "其中垃圾回收（GC）"


def between_steps() -> str:
    return "训练步之间"


def trial_batch() -> str:
    return "使用内存中的批次"


def profiled() -> str:
    return "性能分析期间"


def over_steps(*, time: str, steps: str) -> str:
    return f"每步 {time}，共 {steps} 步"


def of_the_time(*, share: str) -> str:
    return f"占 {share} 的时间"


def if_fixed(*, gain: str) -> str:
    return f"修复后{gain}"


def listed(*, items: tuple[str, ...]) -> str:
    return "；".join(items)


def sequence(*, items: tuple[str, ...]) -> str:
    return "，".join(items)


def text(*, sentences: tuple[str, ...]) -> str:
    return "".join(sentences)


def named(*, name: str, value: str) -> str:
    return f"{name}：{value}"


def full_stop(*, text: str) -> str:
    return f"{text}。"


def aside(*, text: str, more: str) -> str:
    return f"{text}（{more}）"


def unit(*, unit: str, one: bool) -> str:
    return UNITS.get(unit, unit)


def unknown() -> str:
    return "未知"


def yes() -> str:
    return "是"


def no() -> str:
    return "否"


def none() -> str:
    return "无"


def of_one_core(*, share: str) -> str:
    return f"一个核的 {share}"


def no_verdict(*, why: Text) -> str:
    return f"无法指出瓶颈。{why}"


def job_has_ended() -> str:
    return "作业已经结束。请 attach 到正在训练的作业。"


def dump_stacks(*, pid: int) -> str:
    return f"`py-spy dump --pid {pid}` 可以显示它的所有线程在做什么。等作业开始训练后再 attach。"


def attach_to_training() -> str:
    return "等作业开始训练后再 attach，并给出训练进程或其上级进程的 PID。"


def attach_again() -> str:
    return "在作业训练时再次 attach，或用 --duration SECONDS 延长观测时间。"


def check_probes(*, pid: object) -> str:
    return f"`perfdoctor check {pid}` 会说明 perfdoctor 看不到什么，以及如何启用。"


def missing_above() -> str:
    return "上面列出了缺少什么，以及如何启用。"


def left_as_it_was(*, path: str) -> str:
    return f"{path} 保持原样：它是较早的诊断，已指出瓶颈。"


def is_stuck(*, title: str) -> str:
    return f"作业卡住了：{title}"


def still_since() -> str:
    return "没有任何进展的时间"


def held_up_by() -> str:
    return "被谁阻塞"


def who_stands_where() -> str:
    return "各进程停在哪里"


def what_to_do() -> str:
    return "怎么办"


def host_with_ranks(*, name: str, ranks: tuple[int, ...]) -> str:
    return f"{name}：rank {'、'.join(map(str, ranks))}"


def with_price(*, why: str, price: str) -> str:
    return f"{why}{price}"


def needs_torch(*, name: str, since: str, torch: str) -> str:
    return f"# {name} 需要 PyTorch {since} 或更新的版本；该作业使用 {torch}"
