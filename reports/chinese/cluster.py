"""Jobs of many ranks and hosts: which of their files were not read, and what summaries leave out."""

from perfdoctor.reports.text import duration
from perfdoctor.reports.wording import worded


def left_out(*, files: tuple[str, ...], more: int, reason: str) -> str:
    rest = f" 等，另有 {more} 个" if more else ""
    return f"未纳入：{'、'.join(files)}{rest}。{worded(reason).rstrip('.。')}。"


def mend_files() -> str:
    return "重新录制或复制这些文件，然后再次运行该命令：届时只会读取这些文件"


def last_collectives() -> str:
    return (
        "部分 rank 的集合通信数量超出摘要的容量：只在各 rank 之间比较最后的那些，"
        "并假定其余集合通信中等待的是同样的 rank。"
    )


def fewer_steps() -> str:
    return "减少采集的步数；不超过 16 个 trace 时会完整比较"


def missing_ranks(*, ranks: tuple[tuple[int, int], ...], more: int, seen: int, world: int) -> str:
    named = "、".join(f"{first}" if first == last else f"{first} 到 {last}" for first, last in ranks)
    rest = f" 等，另有 {more} 段" if more else ""
    missing = f"缺少：{named}{rest}。" if named else ""
    return f"只看到 {world} 个 rank 中的 {seen} 个：对其他 rank 的等待没有跟踪。{missing}"


def all_traces() -> str:
    return "给出所有 rank 的 trace：perfdoctor analyze FOLDER"


def silent_host(*, host: str, why: str) -> str:
    return f"主机 {host} 未纳入：{worded(why)}"


def ranks_by_host(*, hosts: tuple[str, ...], more: int) -> str:
    where = _listed(hosts, more)
    if not where:
        return "没有启动器说明各 rank 的编号：按主机名的顺序逐台编号。"
    return f"在 {where} 上没有启动器说明各 rank 的编号：用余下的编号逐台编号。"


def ranks_by_start() -> str:
    return "没有变量说明各进程是哪个 rank，从 torch 的内存中也读不出来：按启动的先后编号。"


def set_rank() -> str:
    return "用 torchrun 启动作业，或设置 RANK 和 WORLD_SIZE"


def twice(*, ranks: tuple[int, ...]) -> str:
    named = "、".join(map(str, ranks[:10]))
    return f"两台主机上有相同 rank（{named}）的记录：每个 rank 以最后记录的主机为准。"


def one_run() -> str:
    return "把同一次运行的记录放在单独的文件夹中"


def older(*, sources: tuple[str, ...], host: str) -> str:
    return f"{'、'.join(sources)}：主机 {host} 上相同 rank 的较早记录，未纳入。"


def versions(*, what: str, usual: str, others: tuple[tuple[str, str], ...], more: int) -> str:
    named = "、".join(f"{host} 是 {version}" for host, version in others)
    rest = f"，另有 {more} 台" if more else ""
    return f"各主机的 {what} 版本不同：大多数是 {usual}，但 {named}{rest}。"


def one_version() -> str:
    return "在所有主机上安装同一版本，然后重新记录"


def apart(*, early: str, late: str, seconds: float) -> str:
    return (
        f"按各主机的时钟，{late} 在 {early} 结束 {duration(seconds)} 之后才开始："
        "如果这些时钟是对的，那么各 rank 从未同时被观测，仍对它们的活动作了比较。"
    )


def at_once() -> str:
    return "在所有主机上同时 attach，并用 NTP 或 PTP 保持各主机的时钟一致"


def no_common_clock() -> str:
    return (
        "主机之间按各 rank 等待的时长比较，而不是逐个时刻比较："
        "所有 rank 同样长的等待可能是通信本身，也可能是每一步都不同的落后 rank。"
    )


def attach_trace() -> str:
    return "把所有 rank 的 profiler trace 放在一个文件夹中并运行 perfdoctor analyze FOLDER：集合通信可以校准时钟"


def numbers_of(*, host: str) -> str:
    return f"占比来自所有主机；各项发现中的测量值、文件和代码行来自主机 {host}。"


def report_host() -> str:
    return "对其他每台主机运行 perfdoctor report RECORDING"


def not_drawn() -> str:
    return "各 rank 随时间的活动只按单台主机的记录绘制：perfdoctor report RECORDING。"


def on_some(*, reason: str, hosts: tuple[str, ...], more: int) -> str:
    return f"在 {_listed(hosts, more)} 上：{worded(reason)}"


def _listed(hosts: tuple[str, ...], more: int) -> str:
    return "、".join(hosts) + (f" 等，另有 {more} 台" if more else "")
