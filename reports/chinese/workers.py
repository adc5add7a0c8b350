"""Loader workers: how many keep up with the trainer, and why more of them would not help."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix, percent


def more(
    *,
    now: int,
    beside: int,
    needed: int,
    useful: int,
    busy: float,
    own: float,
    cores: float | None,
    used_cores: float | None,
    threads: int | None,
    pin: bool,
    divides: bool,
    streamed: bool,
    tight: tuple[float, float] | None,
    shared: float | None,
    lost: float | None,
) -> Fix:
    why = f"每一秒中，准备批次需要 {busy:.2g} 秒，训练进程的其他工作需要 {own:.2g} 秒"
    if useful < needed and cores is not None:
        taken = f"，其中 {used_cores:.2g} 个已被作业占用" if used_cores else ""
        why += f"。CPU 只有 {cores:g} 个核{taken}，超过 {useful} 个 worker 进程不会有任何收益"
    else:
        why += f"：有 {needed} 个 worker 进程，训练进程就不用等待"
    if lost is not None:
        why += f"。每次重新遍历加载器时，第一个批次仍要等待：每一秒中有 {lost:.2g} 秒"
    why += f"。这个 DataLoader 现在{f'有 {now} 个' if now else '一个也没有'}"
    why += f"，另外 {beside} 个属于别的 DataLoader" if beside else ""
    title = _titled(f"使用 {useful} 个 worker 进程", threads)
    return fix(title, f"{why}{_beside_workers(threads, tight, shared)}。")


def take_over(
    *,
    line: str | None,
    now: int,
    useful: int,
    busy: float,
    own: float,
    threads: int | None,
    pin: bool,
    tight: tuple[float, float] | None,
    shared: float | None,
    loader: bool,
) -> Fix:
    place = f"（大部分在 {line}）" if line else ""
    why = (
        f"每一秒中，循环本身准备批次用去 {busy:.2g} 秒{place}，其他工作需要 {own:.2g} 秒。前者可以由 worker 进程"
        f"与后者同时进行；现在{f'有 {now} 个' if now else '一个也没有'}"
    )
    title = _titled(f"在 {useful} 个 worker 进程中准备批次，而不是在循环里", threads)
    moved = "" if loader else "。循环中遍历一次数据的代码放进 __iter__，连同它的顺序和随机数"
    moved += "，且在所有 worker 中相同" if moved and useful > 1 else ""
    return fix(title, f"{why}{moved}{_beside_workers(threads, tight, shared)}。")


def _titled(title: str, threads: int | None) -> str:
    return title if threads is None else f"{title}，并用 {threads} 个计算线程"


def _beside_workers(threads: int | None, tight: tuple[float, float] | None, shared: float | None) -> str:
    why = ""
    if threads is not None:
        why += "。worker 进程加上计算线程就多于核数：worker 进程带来的，会从这些线程中夺走"
    if tight is not None:
        size, available = tight
        why += f"。注意内存：一个 worker 进程占 {size / 1000:,.2g} GB，可用内存为 {available / 1000:,.2g} GB"
    if shared is not None:
        why += f"。批次经由 /dev/shm 传递，那里还剩 {shared:,.0f} MB"
    return why


def spread_work(*, busiest: float, following: float) -> Fix:
    return fix(
        "给每个 worker 进程同样多的工作",
        f"最忙的 worker 进程有 {percent(busiest)} 的时间在工作，其次的只有 {percent(following)}："
        "批次轮流交付，所以训练进程和其他 worker 进程都在等它。增加 worker 没有帮助。",
    )


def take_cores(*, now: int) -> str:
    count = "现有的一个" if now == 1 else f"现有的 {now} 个"
    return (
        f"增加 worker 没有帮助：{count} worker 进程准备批次的速度已经跟得上训练进程，"
        "但准备批次占用了训练进程计算所需的核。"
    )


def idle(*, now: int, busy: float) -> str:
    have = "现有的一个" if now == 1 else f"现有的 {now} 个"
    return (
        f"增加 worker 没有帮助：{have} worker 进程每秒只有 {busy:.2g} 秒的工作，"
        "所以训练进程等待的原因在于任务的顺序或大小。"
    )


def no_free_core(*, cores: float) -> str:
    return f"增加 worker 没有帮助：作业可用的 {cores:g} 个核都没有空闲。"


def short_rounds(*, first: float) -> str:
    return (
        f"按现在的写法，worker 进程帮不上忙：每秒有 {first:.2g} 秒用于迭代器的第一个批次，没有 worker 能提前准备它。"
        "请在重新遍历加载器之前，从同一个迭代器取更多批次。"
    )


def keep_pool(*, place: str, share: float) -> Fix:
    return fix(
        "进程池只在循环之前创建一次",
        f"在 {place}，进程池的进程一再启动又结束，占 {percent(share)} 的时间。"
        "每个进程都要 fork，之后父进程每写到一页内存就要复制一页。",
    )
