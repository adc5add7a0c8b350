"""CPU cores: threads that queue for them, and a quota on them."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.chinese.phrases import amount, fix, percent


def queueing() -> str:
    return "等待空闲的核"


def queueing_refuted() -> str:
    return (
        "在没有其他进程运行的地方，用 OMP_NUM_THREADS=1 运行作业一分钟："
        "如果训练进程就绪却得不到核的情况和以前一样多，线程就没有多过核。"
    )


def neighbours(*, busy: Evidence, culprits: tuple[tuple[int, str, float], ...]) -> str:
    return f"作业之外的进程占用了 {amount(busy)}{_named(culprits)}"


def _named(culprits: tuple[tuple[int, str, float], ...]) -> str:
    """Who they are, in brackets; nothing where none was seen."""
    each = "，".join(f"{command}（pid {pid}）{cores:.2g}" for pid, command, cores in culprits)
    return f"（{each}）" if each else ""


def crowded(*, runnable: float, cores: float) -> str:
    return f"作业同时有 {runnable:.3g} 个线程争用 {cores:g} 个核"


def waits_for_others(*, itself: float) -> str:
    return f"其中 {percent(itself)} 是主线程自己在等核，其余时间它在等那些等核的线程"


def find_others() -> Fix:
    return fix("查出还有谁在这些核上运行", "训练进程就绪却得不到核；它自己的线程和相邻的进程都无法解释。")


def more_cores(*, used: float, cores: float) -> Fix:
    return fix(
        "给作业更多的核，或减少它在这些核上的工作",
        f"作业自身占用了 {cores:g} 个核中的 {used:.3g} 个，所以它的线程互相等待。",
        "放宽 taskset 掩码、--cpus-per-task 或容器的限制；否则就降低其他发现所指出的开销。",
    )


def move_neighbours(*, busy: Evidence, cores: int | None, neighbours: tuple[tuple[int, str, float], ...]) -> Fix:
    few = f"，而作业可用的核共有 {cores} 个" if cores else ""
    return fix("让其他进程离开这些核", f"作业之外的进程占用了 {amount(busy)}{few}{_named(neighbours)}。")


def calm_helper(*, pid: int, command: str, busy: float, line: str, part: float) -> Fix:
    where = f"，大多在 {line}" if line else ""
    return fix(
        f"让作业的进程 {pid} 少占用核",
        f"它（{command}）占用了 {busy:.2g} 个核{where}，而训练进程并不等待它的结果。"
        "等待某件事的进程应当睡眠或阻塞，而不是反复查询；必须计算的进程可以在启动时声明，让训练进程优先使用核。",
    )


def fewer_threads_beside(*, threads: int, fitting: int, gain: float) -> Fix:
    return fix(
        f"在它们运行期间，使用 {fitting} 个计算线程",
        f"线程池中的线程要在屏障处会合，所以 {threads} 个线程的速度取决于缺少核的那一个。"
        f"用 {fitting} 个线程，作业的速度可以达到现在与它们并存时的 {gain:.2g} 倍。",
    )


def wider_mask(*, allowed: float, host: float, idle: float, place: str | None) -> Fix:
    itself = f"这是它自己在 {place} 设定的：去掉它，或在那里写上全部的核。" if place else ""
    return fix(
        "让作业使用更多的核",
        f"它的亲和性掩码只允许使用 {host:g} 个核中的 {allowed:g} 个，而主机上有 {idle:.2g} 个核空闲。{itself}",
    )


def unbind_threads(*, variable: str, value: str, allowed: float, host: float, idle: float) -> Fix:
    return fix(
        f"去掉 {variable}，或者让每个进程绑定到自己的核",
        f"{variable}={value} 把线程绑定到核上，而且所有进程的线程都绑定到相同的核："
        f"这里每个进程只在 {host:g} 个核中的 {allowed:g} 个上计算，而主机上有 {idle:.2g} 个核空闲。",
    )


def fewer_threads(
    *, fitting: int, processes: int, runnable: float, cores: float, now: str | None, overruled: bool
) -> Fix:
    have = f"OMP_NUM_THREADS 为 {now}" if now else "没有设置 OMP_NUM_THREADS"
    have += f"，{'但' if now else '因此是'}代码设置了更多线程" if overruled else ""
    return fix(
        f"每个进程使用 {fitting} 个计算线程",
        f"{processes} 个进程同时有 {runnable:.3g} 个线程在 {cores:g} 个核上运行或排队（{have}）。"
        "线程在屏障处互相等待的损失还不包括在内。",
    )


def fewer_workers(*, fitting: int, workers: int, trainers: int, cores: float) -> Fix:
    return fix(
        f"每个训练进程使用 {fitting} 个 worker 进程",
        f"{workers} 个 worker 进程和 {trainers} 个训练进程共用 {cores:g} 个核。",
    )


def standing_still() -> str:
    return "因 CPU 配额用尽而停住"


def standing_still_refuted() -> str:
    return "观察 cgroup 的 cpu.stat 中的 nr_throttled 一分钟：如果它不变，原因就不是配额。"


def raise_quota(*, quota: float | None, visible: float | None, stopped: float | None) -> Fix:
    why = f"配额是 {quota:g} 个核" if quota is not None else "作业受 CPU 配额限制"
    if visible is not None:
        why += f"，而作业看到 {visible:g} 个核，并据此决定线程数"
    often = f"它在 {percent(stopped)} 的周期中被停住。" if stopped is not None else ""
    return fix("提高 CPU 配额", f"{why}。{often}")


def threads_of_quota(*, threads: int) -> Fix:
    return fix(
        f"如果配额不能改，使用 {threads} 个计算线程",
        "线程多于配额时，每个周期一开始就会把配额用完，然后所有线程都停到下一个周期。",
    )
