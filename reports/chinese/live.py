"""What a live view says."""

from perfdoctor.results.view import ThreadActivity

STATES = {
    ThreadActivity.RUNNING: "运行",
    ThreadActivity.DELAYED: "缺核",
    ThreadActivity.BLOCKED: "阻塞",
    ThreadActivity.WAITING: "等待",
    ThreadActivity.STOPPED: "暂停",
    ThreadActivity.ENDED: "结束",
    ThreadActivity.UNSEEN: "-",
}
ROLES = {"trainer": "训练进程", "worker": "worker", "other": "其他"}
COLUMNS = {
    "pid": "PID",
    "role": "角色",
    "state": "状态",
    "cpu": "CPU%",
    "delay": "等核%",
    "blocked": "阻塞%",
    "memory": "内存",
    "shared": "共享",
    "read": "读/s",
    "write": "写/s",
    "called": "调用/s",
    "faults": "缺页/s",
    "gpu": "GPU",
    "gpu_memory": "显存",
    "steps": "步/s",
    "threads": "线程",
    "age": "时长",
    "in": "位于",
    "name": "名称",
    "tid": "TID",
}
LABELS = {"cores": "CPU 核", "memory": "内存", "file": "文件", "network": "网络"}
KEYS = (
    ("up, down, j, k, page up, page down", "选择进程，或滚动"),
    ("enter", "一个进程在做什么：它的线程、阶段和时间去向"),
    ("v", "目前的诊断：发现，以及未检查的内容"),
    ("escape, backspace", "返回"),
    ("s, S", "按下一列、上一列排序"),
    ("P, M, T, D, I", "按 CPU、内存、时长、等核时间、存储流量排序"),
    ("/", "只显示角色、命令、状态或文件中含有这段文字的进程；enter 结束输入，escape 取消"),
    ("left, right", "在已结束的记录中：后退一秒，前进一秒"),
    ("space, home, end", "在已结束的记录中：按原速播放、开头、结尾"),
    ("q, Ctrl-C", "退出；`attach --live` 随后生成诊断和报告"),
)
BAR = ("up/down", "/ 过滤", "s 排序", "enter 打开", "v 诊断", "? 帮助", "q 退出")
REPLAY_BAR = ("/ 过滤", "s 排序", "enter 打开", "v 诊断", "left/right 1 s", "space 播放", "? 帮助", "q 退出")
PHASES = "训练步的阶段"
THREADS = "线程，最忙的在前"
SHARES = "时间去向"
FINDINGS = "发现"
NOT_EXAMINED = "未检查"
HELP = "按键"


def first_stacks() -> str:
    return "最初的 Python 调用栈在几秒内到来；没有它们，大部分时间无法归因。"


def watched_briefly(*, seconds: float, enough: float) -> str:
    return f"已观测 {seconds:.0f} 秒；得出结论需要 {enough:.0f} 秒。"


def names_of_functions() -> str:
    return "机器码中的函数名在退出时才能得到；在那之前，有些时间无法区分。"


def no_diagnosis() -> str:
    return "还没有诊断。"


def title(*, pid: int, host: str, watched: str | None) -> str:
    said = f"perfdoctor：进程 {pid} 的作业" + (f"（{host}）" if host else "")
    return said if watched is None else f"{said}，已观测 {watched}"


def replayed(*, at: str, length: str, playing: bool) -> str:
    return f"{'播放' if playing else '记录已结束'}，{at} / {length}"


def silent(*, seconds: float) -> str:
    return f"{seconds:.0f} 秒没有新数据：记录进程已停止或退出"


def basis(*, confidence: str, level: str, begin: float, end: float) -> str:
    return f"置信度 {confidence}，{level}；针对第 {begin:.0f} 到 {end:.0f} 秒"


def cores(*, job: str, usable: str, neighbours: str, perfdoctor: str, delayed: str) -> str:
    return f"作业 {job} / {usable}，其他 {neighbours}，perfdoctor {perfdoctor}；{delayed} 个线程在等核"


def throttled(*, part: str) -> str:
    return f"在 {part} 的周期中被配额停住"


def pressure(*, cpu: str, memory: str, io: str) -> str:
    return f"压力：CPU {cpu}，内存 {memory}，I/O {io}"


def memory(*, job: str, used: str, total: str, cache: str, swap: str) -> str:
    return f"作业 {job}；已用 {used} / {total}，页缓存 {cache}，交换区 {swap}"


def swapping(*, rate: str) -> str:
    return f"换入换出 {rate}/s"


def device(*, read: str, write: str, operations: str, latency: str, busy: str) -> str:
    return f"读 {read}/s，写 {write}/s，请求 {operations}/s，每次读取 {latency}，忙碌 {busy}"


def link(*, received: str, sent: str, speed: str) -> str:
    return f"接收 {received}/s，发送 {sent}/s" + (f"，链路 {speed}/s" if speed else "")


def connections(*, threads: str) -> str:
    return f"作业有 {threads} 个线程在等待连接"


def gpu(*, busy: str, sm: str, tensor: str, bandwidth: str, used: str, total: str) -> str:
    return f"忙碌 {busy}，SM {sm}，Tensor Core {tensor}，DRAM {bandwidth}，显存 {used} / {total}"


def gpu_board(*, power: str, limit: str, temperature: str, clock: str, most: str, received: str, sent: str) -> str:
    return f"{power} / {limit} W，{temperature} C，{clock} / {most} MHz，PCIe 收 {received}/s 发 {sent}/s"


def path(*, threads: str, blocked: str, call: str) -> str:
    return f"{threads} 个线程在 {call} 中，其中 {blocked} 个阻塞"


def process(*, role: str, pid: int, command: str) -> str:
    return f"{role}，进程 {pid}：{command}"


def process_gone(*, pid: int) -> str:
    return f"进程 {pid} 已经结束。按 escape 返回。"


def filtered(*, text: str, shown: int, all_of_them: int) -> str:
    return f"过滤：{text}（{all_of_them} 个进程中的 {shown} 个）"


def too_small(*, width: int, height: int) -> str:
    return f"这个终端太小：至少需要 {width} 列 {height} 行，或按 q 退出。"
