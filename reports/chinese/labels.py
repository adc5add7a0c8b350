"""What reports call their own parts: headings, names of rows, and words between numbers."""

from perfdoctor.diagnosis import Text

_SEVERITIES = {"high": "严重", "medium": "中等", "low": "轻微", "none": "无瓶颈", "no bottleneck": "无瓶颈"}

_UNITS = {
    "of the time": "的时间",
    "of the samples": "的采样点",
    "of it": "的部分",
    "of periods": "的周期",
    "of bytes": "的字节",
    "of segments": "的段",
    "of the clock": "的频率",
    "of the memory": "的显存",
    "of its bandwidth": "的带宽",
    "of the links": "的链路",
    "of the CPU time": "的 CPU 时间",
    "of kernels": "的 kernel",
    "of its overhead": "的这部分开销",
    "of their time": "的 kernel 时间",
    "of the kernels' time": "的 kernel 时间",
    "of copies with the host": "的主机拷贝",
    "of the GPU's peak": "的 GPU 峰值",
    "of the parts": "的各部分",
    "of the step": "的步长",
    "cores": "个核",
    "workers": "个 worker 进程",
    "threads": "个线程",
    "GPUs": "块 GPU",
    "processes": "个进程",
    "repairs": "处修复",
    "errors": "个错误",
    "operators": "个算子",
    "kernels": "个 kernel",
    "times": "倍",
    "times the nearest": "倍于最近的节点",
    "times as long as by the same ones alone": "倍于同样的工作单独运行时",
    "times as long as on others": "倍于其他 rank",
    "bytes": "字节",
}


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


def unit(*, unit: str) -> str:
    return _UNITS.get(unit, unit)


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
