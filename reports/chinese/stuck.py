"""What holds a job up that makes no progress: the verdict, who stands where, what to do, and what would refute it."""

from collections.abc import Sequence

from perfdoctor.reports.shared_words import OPENS, alike, by_advice, by_host, first_ranks, for_each, in_common
from perfdoctor.results.stuck import FROZEN, Halt

TITLES = {
    "stopped": "有进程被暂停",
    "debugger": "有进程停在调试器里",
    "terminal": "有进程在等人输入",
    "exception": "有 rank 停在异常处理中",
    "exit": "有 rank 停在退出阶段",
    "lock": "锁、队列或事件一直没有释放",
    "file_lock": "文件锁被别的进程占着",
    "gil": "有线程一直占着 GIL",
    "pipe": "管道的另一端没有动静",
    "socket": "连接的另一端没有回应",
    "storage": "存储或文件服务器没有回应",
    "child_process": "子进程一直不结束",
    "sleep": "有进程在睡眠，或者在反复查看一直不来的东西",
    "loop": "有进程可能陷入死循环",
    "unknown": "原因没有看到",
    "collective_mismatch": "各 rank 的集合通信对不上",
    "missing_rank": "缺少 rank",
    "unwatched_rank": "各 rank 在等没有被观测的 rank",
    "rank_elsewhere": "有 rank 没有来到集合通信",
    "gpu_wait": "所有 rank 都在等各自的 GPU",
    "network": "集合通信一直没有完成",
    "rendezvous": "各 rank 找不到彼此",
}
NEXT = {
    "stopped": "让被暂停的进程继续运行：`kill -CONT {pids}`。",
    "frozen": "解冻控制组 {groups}：`docker unpause`、`systemctl thaw` 或批处理系统的恢复命令；"
    "或者向它的 cgroup.freeze 写入 0（版本 1：向 freezer.state 写入 THAWED）。",
    "debugger": "让调试器继续或者脱离；没有终端时运行的代码里不要留断点。",
    "terminal": "在它的终端上回答，或者换一种不需要询问的启动方式。",
    "exception": "在该 rank 的日志中查看这个异常。让异常处理结束进程：`torchrun` 随后会结束其他 rank。",
    "exit": "结束停在那里的进程：`kill {pids}`。线程应设为 daemon，atexit 里的等待应设上限。",
    "lock": "查看该进程的所有线程在做什么：{dumps}。"
    "不要在有线程持锁时 fork 子进程：启动方式请用 spawn。给等待加上超时。",
    "file_lock": "如果占锁的进程是残留的，就结束它，或者删除锁文件。",
    "gil": "调用那个函数时不要占着 GIL（用 ctypes.CDLL 而不是 PyDLL，或 Py_BEGIN_ALLOW_THREADS）。",
    "pipe": "查看另一端的进程；如果没有，查明原因。要读取子进程的标准输出和标准错误，或者把它们写到文件。",
    "socket": "查看服务器，并给请求加上超时。",
    "storage": "`cat {stacks}` 显示内核停在哪里，`dmesg` 显示设备或服务器的情况。",
    "child_process": "查看子进程，并给等待加上超时。",
    "sleep": "查看它在等什么，并限制尝试的次数。",
    "loop": "再观测更长时间。查看变量是否在变化：{dumps_of_variables}。",
    "unknown": "查看该进程的所有线程在做什么：{dumps}。",
    "collective_mismatch": "让所有 rank 按同样的顺序调用同样的集合通信：不要把集合通信放在随 rank 而不同的条件里，"
    "各 rank 的批次数也要相同（`DistributedSampler`、`Join`）。",
    "missing_rank": "查看该 rank 为什么结束或者没有启动：它的日志、`dmesg`（内存不足）、启动器。然后重新启动作业。",
    "unwatched_rank": "在作业的每台主机上都启动 perfdoctor，各自加上 `--recording`，再合成一份报告："
    "`perfdoctor report *.perfdoctor`。如果每台主机都观测过了，那么这些 rank 已经结束：查看它们的日志。"
    "如果是 Flight Recorder 的转储，请收集所有 rank 的。",
    "rank_elsewhere": "趁该 rank 还在运行，在它的主机上用 `perfdoctor attach` 可以看到它停在哪里；"
    "它的日志会说明它是否已经结束。",
    "gpu_wait": "如果作业启动时允许转储集合通信（`TORCH_FR_BUFFER_SIZE`、`TORCH_NCCL_DEBUG_INFO_PIPE_FILE`），"
    "就加上 `--flight-recorder` 再观测一次：转储会说明是哪一次集合通信，以及谁不在其中。",
    "network": "检查 rank 之间的网络：网卡（GLOO_SOCKET_IFNAME、NCCL_SOCKET_IFNAME）、防火墙、MTU。",
    "rendezvous": "确认各 rank 的 MASTER_ADDR 和 MASTER_PORT 相同、RANK 各不相同，启动的数量与 WORLD_SIZE 一致："
    "如果脚本自己会启动各 rank，再用 torchrun 启动它，就会启动两遍。跨主机时再检查网卡（GLOO_SOCKET_IFNAME、"
    "NCCL_SOCKET_IFNAME）和防火墙。",
}
REFUTED = {
    "loop": "不久之后它有读写，或者进入别的函数：那么它只是慢，而不是卡住。",
    "sleep": "不久之后它继续运行：那么它在等很少到来的东西，而不是卡住。",
    "gpu_wait": "不久之后它继续运行：那么只是一次集合通信或一个核函数很久，作业是慢，而不是卡住。",
    "missing_rank": "该 rank 在另一台主机上运行。",
    "unwatched_rank": "不久之后某个没有被观测的 rank 继续运行：那么作业只是慢，而不是卡住。",
}
REFUTED_ELSE = "再次观测时，作业已经前进。"


def title(*, kind: str) -> str:
    return TITLES.get(kind, kind)


def summary(*, kind: str, chain: Sequence[Halt], waiting: Sequence[Halt], ranks: Sequence[int], since_s: float) -> str:
    since = f"至少 {since_s:.{1 if since_s < 100 else 0}f} 秒以来没有任何进展。" if since_s else "有多久还不知道。"
    return f"{_who_waits('卡住了', kind, chain, waiting, ranks)}{since}{_unseen(kind, waiting, ranks)}"


def still(*, kind: str, chain: Sequence[Halt], waiting: Sequence[Halt], ranks: Sequence[int]) -> str:
    waits = _who_waits("在观测期间没有在训练", kind, chain, waiting, ranks)
    return f"{waits}观测时间太短，无法与一个很慢的训练步区分。{_unseen(kind, waiting, ranks)}"


def _who_waits(is_stuck: str, kind: str, chain: Sequence[Halt], waiting: Sequence[Halt], ranks: Sequence[int]) -> str:
    several = len({halt.rank for halt in (*chain, *waiting)}) > 1 or bool(ranks and not chain)
    if kind == "missing_rank":
        here = "被观测的主机" if any(halt.host for halt in waiting) else "本机"
        return f"作业{is_stuck}：{_ranks(ranks)} 不在{here}的作业进程中，{_waits(waiting)}。"
    if kind == "unwatched_rank":
        return f"作业中已知的部分{is_stuck}：{_waits(waiting)}。"
    if kind == "collective_mismatch":
        return f"作业{is_stuck}：各 rank 的集合通信对不上：{_waits((*chain, *waiting), tensors=True)}。"
    if kind == "gpu_wait":
        return (
            f"作业{is_stuck}，或者在一次很久的集合通信中：{_waits((*chain, *waiting))}，所有 GPU 都很忙，"
            "功率却只有互相等待时那么高。"
        )
    if kind == "network":
        return f"作业{is_stuck}：{_waits((*chain, *waiting))}，但一直没有完成。"
    if kind == "rendezvous":
        return f"作业{is_stuck}：{_waits((*chain, *waiting))}，但一直没有找到彼此。"
    chained = "；".join(f"{_who(halts, several=several)}{_sits(in_common(halts))}" for halts in alike(chain))
    text = f"作业{is_stuck}：{chained}。"
    return f"{text}{_waits(waiting)}。" if waiting else text


def _unseen(kind: str, waiting: Sequence[Halt], ranks: Sequence[int]) -> str:
    """That the ranks for which others wait were not seen."""
    if kind != "unwatched_rank":
        return ""
    unseen = f"{_ranks(ranks)} 没有被观测" if any(halt.watched for halt in waiting) else f"没有 {_ranks(ranks)} 的转储"
    return f"{unseen}：是谁拖住了其他 rank 还不知道。"


def who(*, halt: Halt, several: bool) -> str:
    return _who((halt,), several=several)


def where(*, halt: Halt) -> str:
    sits = _sits(halt)
    return f"{sits}；其他线程位于 {'、'.join(halt.threads)}" if halt.threads else sits


def no_call_open(*, open_s: float) -> str:
    if open_s:
        return f"在这些转储里没有看到卡住：其中的集合通信只等了 {open_s:.0f} 秒，不算久。"
    return "在这些转储里没有看到卡住：其中的集合通信都已完成。"


def next_move(*, kind: str, ends: Sequence[Halt]) -> str:
    hosts: dict[str, list[str]] = {}
    for (about, host), halts in by_advice(kind, ends).items():
        pids = [halt.pid for halt in halts]
        text = NEXT[about].format(
            pids=" ".join(map(str, pids)),
            stacks=" ".join(f"/proc/{pid}/stack" for pid in pids),
            dumps=for_each("py-spy dump --pid {}", pids, "、"),
            dumps_of_variables=for_each("py-spy dump --locals --pid {}", pids, "、"),
            groups="、".join(dict.fromkeys(halt.target.removeprefix(FROZEN) for halt in halts)),
        )
        hosts.setdefault(text, []).append(host)
    return "".join(f"在 {'、'.join(on)} 上：{text}" if any(on) else text for text, on in hosts.items()) or NEXT[kind]


def refuted_by(*, kind: str) -> str:
    return REFUTED.get(kind, REFUTED_ELSE)


def _who(halts: Sequence[Halt], *, several: bool) -> str:
    """A process, or each of several that are alike."""
    first = halts[0]
    on = f"{first.host} 上的" if first.host else ""
    if len(halts) > 1 and first.own:
        listed = _processes(halts)
        return f"{_ranks([halt.rank or 0 for halt in halts])}{f'（{listed}）' if listed else ' '}都"
    if len(halts) > 1:
        return f"它们的{_processes(halts)}（{first.name}）都"
    if not first.own:
        return f"它的{on}进程 {first.pid}（{first.name}）"
    if not first.pid:
        return f"rank {first.rank}"
    return f"rank {first.rank}（{on}进程 {first.pid}）" if several else f"{on}进程 {first.pid}"


def _processes(halts: Sequence[Halt]) -> str:
    hosts = [(first_ranks(pids, "、", "……"), host) for host, pids in by_host(halts).items()]
    return "、".join(f"{host} 上的进程 {pids}" if host else f"进程 {pids}" for pids, host in hosts)


def _ranks(ranks: Sequence[int]) -> str:
    return "rank " + first_ranks(ranks, "、", "……")


def _waits(halts: Sequence[Halt], *, tensors: bool = False) -> str:
    """Ranks by where they wait, where asked with what they have given to the collective."""
    by_place: dict[tuple[str, str], list[int]] = {}
    for halt in halts:
        given = f"（{halt.tensors}）" if tensors and halt.tensors else ""
        by_place.setdefault((_sits_for_ranks(halt) + given, halt.line), []).append(halt.rank or 0)
    places = [f"{_ranks(ranks)} {sits}{f'（{line}）' if line else ''}" for (sits, line), ranks in by_place.items()]
    return "，".join(places)


def _sits_for_ranks(halt: Halt) -> str:
    if halt.kind == "rendezvous":
        return f"在等其他 rank 到来{f'（{halt.collective}）' if halt.collective else ''}"
    if halt.kind == "gpu_wait":
        return f"在等它的 GPU{f'（{_call(halt)}）' if halt.collective else ''}"
    return f"在 {_call(halt)} 中等待" if halt.kind == "collective" else f"在别处（{title(kind=halt.kind)}）"


def _call(halt: Halt) -> str:
    """The collective, with its number and group where they are known."""
    number = "" if halt.sequence is None else f"（第 {halt.sequence} 次）"
    return f"{f'组 {halt.group} 的 ' if halt.group else ''}{halt.collective or '集合通信'}{number}"


def _sits(halt: Halt) -> str:
    return _doing(halt) + (f"，位置在 {halt.line}" if halt.line else "")


def _doing(halt: Halt) -> str:
    """What a process does in place of going on."""
    path = halt.target.partition(":")[2]
    match halt.kind:
        case "collective" | "rendezvous" | "gpu_wait":
            return _sits_for_ranks(halt)
        case "rank_elsewhere":
            return f"没有来到那里；它最后一次调用的是 {_call(halt)}"
        case "stopped" if halt.target.startswith(FROZEN):
            return f"随控制组 {path} 一起被冻结"
        case "debugger":
            return f"停在调试器里{_others(halt, '（{}）')}"
        case "terminal":
            return f"在等人在终端{f' {path} ' if path else ''}上输入"
        case "exception":
            return f"在处理 {halt.handling} 异常时停住{f'（{halt.call}）' if halt.call else ''}"
        case "file_lock":
            return f"在等文件{f' {path} ' if path else ''}的锁{_others(halt, '，占锁的是 {}')}"
        case "pipe" if halt.call in ("write", "writev", "sendfile"):
            return f"在向没有人读的管道{_named(path)}写数据{_others(halt, '；另一端：{}')}"
        case "pipe" if halt.call in OPENS:
            return f"在打开管道{_named(path)}，而没有人打开它的另一端"
        case "pipe":
            return f"在等管道{_named(path)}，但没有数据到来{_others(halt, '；另一端：{}')}"
        case "socket" if halt.call == "connect":
            return "在连接没有回应的对方"
        case "socket":
            return f"在等网络连接，但没有数据到来{_others(halt, '；另一端：{}')}"
        case "storage":
            mapped = "它映射的某个文件" if halt.call == "fault" else "某个文件"
            return f"停在 {halt.call or '内核'} 中，等待{f'文件 {path}' if path else mapped}"
    return _DOING[halt.kind]


_DOING = {
    "stopped": "被暂停（SIGSTOP、Ctrl-Z）",
    "exit": "已经运行完脚本，停在退出阶段",
    "lock": "在等锁、队列或事件，而没有人会释放",
    "gil": "在等 GIL，而它的另一个线程占着 GIL 却不运行",
    "child_process": "在等子进程结束",
    "sleep": "在睡眠",
    "loop": "一直在代码的同一处计算，既不读入也不保留任何数据",
    "unknown": "没有动静",
    "loader": "在等批次",
}


def _named(path: str) -> str:
    return f"（{path}）" if path else ""


def _others(halt: Halt, text: str) -> str:
    """Who is at the other end, as far as that is known."""
    if halt.others is None:
        return ""
    itself = f"{halt.name} ({halt.pid})"
    named = ["它自己" if other == itself else other for other in halt.others]
    return text.format("、".join(named) or "没有人")
