"""How the numbers of one diagnosis were made: what was looked at, how often, and what that leaves open."""


def states(*, samples: int, trainers: int, workers: int, hertz: float) -> str:
    others = f"，另有 {workers} 个加载 worker" if workers else ""
    return f"线程状态从内核读取：{trainers} 个训练进程的主线程共 {samples:,} 个样本，每秒约 {hertz:.0f} 个{others}。"


def no_stacks() -> str:
    return "没有对 Python 调用栈采样：运行的是哪段代码，由别处得知或无从得知。"


def stacks(*, processes: int, pieces: int, covered: float, missed: int) -> str:
    failed = f"；{missed:,} 个样本失败，因为读取时调用栈发生了变化" if missed else ""
    return f"{processes} 个进程的 Python 调用栈经过采样，分 {pieces} 段，共 {covered:.1f} s{failed}。"


def machine_code(*, samples: int, hertz: int) -> str:
    return f"机器码查看了 {samples:,} 次：线程每运行一秒 {hertz} 次。"


def machine_code_by_stops(*, samples: int, stopped: float) -> str:
    return f"机器码查看了 {samples:,} 次：每次让运行中的线程短暂停住；所有进程的线程合计停住 {stopped:.2g} s。"


def interpreter(*, samples: int) -> str:
    return f"谁持有 GIL、是否在回收垃圾，读取了 {samples:,} 次。"


def readings(*, rounds: tuple[tuple[str, int, float], ...]) -> str:
    listed = "，".join(f"{probe} {count} 次（每 {every:.2g} s）" for probe, count, every in rounds)
    return f"此外读取的计数器：{listed}。"


def marked(*, steps: int, phases: int) -> str:
    return f"{steps:,} 个训练步从内部标记，有 {phases} 种阶段：起止时间是精确的。"


def counted(*, steps: int) -> str:
    return f"{steps:,} 个训练步从外部计数：长度是精确的，阶段由调用栈得出。"


def no_steps() -> str:
    return "训练步既没有标记也没有计数：阶段由调用栈得出，占比是对时间而言，不是对训练步而言。"


def traced(*, traces: int, events: int) -> str:
    return f"读取了 {traces} 个 trace 中的 {events:,} 个事件。"


def without_profiler(*, recording: float, shorter: float, step_ms: float | None) -> str:
    step = "" if step_ms is None else f"：每步 {step_ms:.1f} 毫秒，而不是 {step_ms / (1 - shorter):.1f} 毫秒"
    return (
        f"据估计，性能分析器本身占用了主机 {recording:.0%} 的时间。所有占比和收益都是没有它时的，"
        f"那时耗时会短 {shorter:.0%}{step}。"
    )


def drawn_anew(*, blocks: int, draws: int, low: float, high: float) -> str:
    return f"不确定性：把账目的 {blocks} 秒重新抽样 {draws} 次，十次中有九次第一原因占 {low:.0%} 到 {high:.0%} 的时间。"
