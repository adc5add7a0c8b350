"""出错后的下一步。只有 agent 的工具是英文的，所以这里只说命令。"""


def list_processes() -> str:
    return "`perfdoctor ps` 列出这台主机上的训练作业。"


def name_trainer() -> str:
    return f"请指定训练进程，或它上面的进程；{list_processes()}"


def attach(*, pid: int) -> str:
    return f"perfdoctor attach {pid}"


def attach_outer(*, inner: int, outer: tuple[int, ...]) -> str:
    listed = "、".join(map(str, outer))
    return f"容器中编号为 {inner} 的进程在这里是 {listed}：{attach(pid=outer[0])}"


def record_again() -> str:
    return "请用 `perfdoctor attach PID --recording FILE` 重新记录作业。"


def record_or_trace(*, trace: str) -> str:
    return f"请用 `perfdoctor attach PID --recording FILE` 观测作业。若要 trace：{trace}"


def read_recording(*, path: str) -> str:
    return f"perfdoctor report {path}"


def analyze_trace(*, path: str) -> str:
    return f"如果它是性能分析器的 trace：perfdoctor analyze {path}"


def report_again() -> str:
    return "请重新生成：perfdoctor report RECORDING --json FILE.json"


def list_causes(*, near: tuple[str, ...], known: tuple[str, ...]) -> str:
    meant = f"是否指 {' 或 '.join(near)}？" if near else ""
    return f"{meant}`perfdoctor explain` 列出全部 {len(known)} 个原因。"
