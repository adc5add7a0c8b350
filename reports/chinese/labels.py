"""What reports call their own parts: headings, names of rows, and words between numbers."""

from perfdoctor.diagnosis import Text

_SEVERITIES = {"high": "严重", "medium": "中等", "low": "轻微", "none": "无瓶颈", "no bottleneck": "无瓶颈"}


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


def of_the_time(*, share: str) -> str:
    return f"占 {share} 的时间"


def if_fixed(*, speedup: str) -> str:
    return f"修复后 {speedup}"


def listed(*, items: tuple[str, ...]) -> str:
    return "；".join(items)


def sequence(*, items: tuple[str, ...]) -> str:
    return "，".join(items)


def text(*, sentences: tuple[str, ...]) -> str:
    return "".join(sentences)


def named(*, name: str, value: str) -> str:
    return f"{name}：{value}"


def aside(*, text: str, more: str) -> str:
    return f"{text}（{more}）"


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


def dump_stacks(*, pid: int | None) -> str:
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
