"""What happened to a job that is watched for days, and headings of its history."""

_SIGNALS = {
    "job_memory_bytes": "作业的内存",
    "swapped_bytes": "作业被换出的内存",
    "memory_available_bytes": "作业还可用的内存",
    "page_cache_bytes": "页缓存",
    "job_cores": "作业占用的核",
    "neighbour_cores": "被他人占用的核",
    "core_clock_hertz": "CPU 核频率",
    "gpu_temperature_celsius": "GPU 温度",
    "gpu_clock_hertz": "GPU 频率",
    "gpu_memory_bytes": "GPU 显存",
}


def found(*, pid: int, command: str) -> str:
    return f"正在观测进程 {pid}：{command}"


def started_again(*, pid: int) -> str:
    return f"作业已重新启动，进程为 {pid}"


def ended(*, pid: int) -> str:
    return f"作业（进程 {pid}）已结束；等待它重新启动"


def given_up() -> str:
    return "作业没有重新启动；观测结束"


def interrupted() -> str:
    return "观测已被终止"


def unseen(*, reason: str) -> str:
    return f"未能观测：{reason}"


def slower(*, more: str, before: str, after: str) -> str:
    return f"变慢 {more}：每步从 {before} 变为 {after}"


def faster(*, less: str, before: str, after: str) -> str:
    return f"变快：每步从 {before} 变为 {after}，减少 {less}"


def dip(*, said: str, lasted: str) -> str:
    return f"在 {lasted} 内{said}"


def recurring(*, count: int, longer: str, share: str, rhythm: str) -> str:
    return f"有 {count} 步比其他步多用 {longer}，占时间的 {share}：{rhythm}"


def every_steps(*, steps: int, every: str) -> str:
    return f"每 {steps:,} 步一次，约每 {every}"


def by_the_clock(*, every: str) -> str:
    return f"按时钟每 {every} 一次，与其间的步数无关"


def every(*, every: str) -> str:
    return f"约每 {every} 一次"


def dips(*, count: int, lasted: str, lost: str, share: str, rhythm: str) -> str:
    return f"有 {count} 次一时变慢：每次持续 {lasted}，损失 {lost}，占时间的 {share}：{rhythm}"


def restarts(*, count: int, lost: str, share: str, rhythm: str) -> str:
    return f"作业重新启动了 {count} 次，每次有 {lost} 没有训练，占时间的 {share}：{rhythm}"


def no_rhythm() -> str:
    return "没有规律"


def drift(*, more: str, before: str, after: str, meanwhile: tuple[str, ...]) -> str:
    beside = f"；同时 {'、'.join(meanwhile)}" if meanwhile else ""
    return f"缓慢变慢 {more}：每步从当时的 {before} 变为 {after}{beside}"


def signal(*, name: str, change: str) -> str:
    return f"{_SIGNALS.get(name, name)} {change}"


def memory(*, before: str, after: str, each_hour: str, left: str | None) -> str:
    until = "" if left is None else f"；可用内存将在 {left} 后耗尽"
    return f"作业的内存在增长：从 {before} 变为 {after}，每小时增加 {each_hour}{until}"


def no_steps(*, usual: str | None, lasted: str | None) -> str:
    if usual is None:
        return "作业停滞不前" if lasted is None else f"作业曾有 {lasted} 停滞不前"
    how_long = "没有完成任何一步" if lasted is None else f"有 {lasted} 没有完成任何一步"
    return f"{how_long}，而一步通常需要 {usual}"


def stuck(*, said: str, title: str, summary: str) -> str:
    return f"{said}：{title}。{summary}"


def cause(*, cause: str, before: str, after: str) -> str:
    return f"{cause}占时间的 {after}，之前为 {before}"


def because(*, said: str, cause: str, less: bool) -> str:
    return f"{said}。用时{'减少' if less else '增加'}的是：{cause}"


def heading_history() -> str:
    return "发生了什么"


def heading_periods() -> str:
    return "运行经过"


def nothing_happened() -> str:
    return "没有超出噪声的变化。"


def watched(*, since: str, until: str, beats: str, windows: int, cost: str) -> str:
    return f"从 {since} 到 {until}：计步 {beats}，perfdoctor attach 窗口 {windows} 个（{cost}）。"


def window_cost(*, cost: str, cores: str) -> str:
    return f"CPU 时间 {cost}，一个核的 {cores}"


def column_from() -> str:
    return "从"


def column_steps() -> str:
    return "步数"


def column_step() -> str:
    return "每步用时"


def column_long() -> str:
    return "长步"


def column_cause() -> str:
    return "主要是"


def column_memory() -> str:
    return "内存"


def not_seen() -> str:
    return "未观测"
