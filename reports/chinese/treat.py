"""Treatments: what is changed, why that may help, and the lines that make it permanent; and why a trial failed."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix


def more_workers(*, workers: int, now: int) -> Fix:
    return fix(
        f"用 {workers} 个 worker 进程代替 {now} 个",
        "批次由常驻的进程准备，与训练并行。",
    )


def workers_and_threads(*, workers: int, now: int, threads: int) -> Fix:
    return fix(
        f"用 {workers} 个 worker 进程代替 {now} 个，并用 {threads} 个计算线程",
        "worker 进程会占用计算所需的核；减少线程，两者就都放得下。",
    )


def fewer_workers(*, workers: int, now: int) -> Fix:
    return fix(
        f"用 {workers} 个 worker 进程代替 {now} 个",
        "worker 进程会占用训练所需的核，交接批次也要花时间。",
    )


def keep_workers() -> Fix:
    return fix("worker 进程在 epoch 之间常驻", "否则每个 epoch 都要重新启动它们。")


def prefetch_more() -> Fix:
    return fix("提前准备更多批次", "批次的开销不一时，已准备好的批次可以填补慢的批次。")


def share_by_name() -> Fix:
    return fix("按名称共享批次", "这样 worker 进程传递共享内存的名称，而不是打开的文件。")


def fork_server() -> Fix:
    return fix(
        "由 fork server 启动 worker 进程",
        "它只导入一次 torch，而且很小：从它 fork 比从训练进程 fork 更快，也比启动新的 Python 更快。",
    )


def fork() -> Fix:
    return fix("worker 进程由 fork 产生", "它们一开始就有训练进程已经加载的一切。")


def pin() -> Fix:
    return fix("批次放在锁页内存中", "从那里拷贝到 GPU 更快，还可以与计算重叠。")


def cached_batches() -> Fix:
    return fix(
        "反复使用同样的几个批次",
        "它显示如果输入数据没有开销，作业能有多快。",
        "这不是可以保留的改动：它是更快的输入最多能带来的收益。",
    )


def staged(*, places: tuple[str, ...]) -> Fix:
    return fix("把所读的文件放进内存", "作业在等待这些文件，而内存放得下它们。")


def threads(*, threads: int, now: int) -> Fix:
    return fix(
        f"用 {threads} 个计算线程代替 {now} 个",
        "得不到空闲的核或无事可做的线程，开销大于收益。",
    )


def bound(*, split: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], threads: int | None) -> Fix:
    who = "训练进程和它的 worker 进程" if any(workers for _, workers in split) else "每个训练进程"
    fewer = f"，并用 {threads} 个计算线程" if threads else ""
    return fix(f"{who}各用自己的核{fewer}", "这样它们不必在同一个核上轮流运行，数据也留在核的缓存里。")


def sleeping_threads() -> Fix:
    return fix("计算线程在等待时睡眠", "默认情况下它们会空转一会儿，占着别人可以使用的核。")


def freeze() -> Fix:
    return fix("垃圾回收（GC）跳过常驻的对象", "最初几步之后已有的对象不再遍历，新对象也更少遍历。")


def collect_rarely(*, line: str) -> Fix:
    return fix("gc.collect() 每 100 次调用只执行一次", f"调用它的是 {line}。")


def keep_memory(*, variables: tuple[tuple[str, str], ...]) -> Fix:
    return fix("释放的内存留给下一步", "否则每一步都要把大张量的内存逐页归还内核，再重新获取。")


def huge_pages(*, variables: tuple[tuple[str, str], ...]) -> Fix:
    return fix("使用 2 MiB 的内存页", "这样处理器在大张量中寻址所需的表项更少。")


def allocator(*, name: str, preload: str) -> Fix:
    return fix(f"用 {name} 作为内存分配器", "它保留并重复使用内存，线程分配内存时不必互相等待。")


def growing_segments() -> Fix:
    return fix("可增长的显存段", "不同大小的块都放得下，分配器不必归还显存再重新获取。")


def optimizer(*, option: str) -> Fix:
    return fix(f"使用 {option}=True 的优化器", "所有参数用少数几次调用更新，而不是每个参数各若干次。")


def channels_last() -> Fix:
    return fix("图像使用 channels last 布局", "许多卷积 kernel 都使用这种布局。")


def compile() -> Fix:
    return fix("编译模型", "算子被融合，分发的开销被省去；最初几步会更慢。")


def cudnn_benchmark() -> Fix:
    return fix("让 cuDNN 试出最快的 kernel", "适用于形状不变的情况。")


def tf32() -> Fix:
    return fix("float32 的矩阵乘法使用 TF32", "这样由 Tensor Core 计算，尾数为 10 位。")


def buckets() -> Fix:
    return fix("更大的梯度桶", "集合通信更少、更大，并且梯度不需要拷贝。")


def no_sync(*, passes: int) -> Fix:
    return fix("每一步只交换一次梯度", f"梯度在 {passes} 次前向与反向中累积，却每次都交换。")


def unset(*, name: str) -> Fix:
    return fix(f"不设置 {name}", "它用于调试，会拖慢每一步。")


def all_instructions(*, name: str) -> Fix:
    return fix(f"不设置 {name}", "它让计算用不上 CPU 可能有的指令。")


def no_anomaly_detection() -> Fix:
    return fix("不用异常检测", "它为每个算子记录 traceback。")


def no_saves() -> Fix:
    return fix(
        "不保存检查点",
        "它显示如果保存没有开销，作业能有多快。",
        "这不是可以保留的改动：它是减少保存、或与训练并行保存最多能带来的收益。",
    )


def crashed(*, status: int, said: str) -> str:
    ended = f"作业被信号 {-status} 终止" if status < 0 else f"作业以状态 {status} 结束"
    return f"{ended}：{said}" if said else f"{ended}，没有任何输出。"


def no_step(*, ended: bool, waited: float) -> str:
    return "作业没有完成任何训练步就结束了。" if ended else f"{waited:.0f} 秒内没有任何训练步。"


def few_steps(*, steps: int, ended: bool) -> str:
    return f"{'作业结束' if ended else '时间用完'}之前只有 {steps} 个训练步。"


def not_applied() -> str:
    return "这个改动在作业中没有找到可以作用的地方。"


def nothing_to_stage() -> str:
    return "它所等待的文件由每次运行自己生成，或已经在内存中。"


def staged_with_code() -> str:
    return "它所等待的文件就在工作目录本身或其上级目录中，没有自己的目录。"


def no_room_to_stage(*, size: float, room: float) -> str:
    return f"它的文件至少需要 {size / 1e9:,.1f} GB，而副本最多可用 {room / 1e9:,.1f} GB，即空闲内存的一半。"


def too_slow_to_stage() -> str:
    return "在给定的时间内，复制它的文件太慢。"


def not_staged(*, why: str) -> str:
    reason = why or "进程不能有自己的挂载：这需要 root 权限，或用户命名空间"
    return f"内存中的副本不能放到文件的位置上。{reason}。"


def no_time(*, needed: float) -> str:
    return f"没有时间了：再试两次约需 {needed:.0f} 秒，之后还要再试一次最好的改动。"


def dry_run() -> str:
    return "dry run 只说明会尝试什么。"


def given_up() -> str:
    return "第一次就慢得多，因此没有再试。"


def interrupted() -> str:
    return "在试第二次之前被中断。"


def several_ranks() -> str:
    return "只有单个 rank 的作业才从内部尝试改动：否则所有 rank 都必须在同一步改动。"


def not_waiting() -> str:
    return "在步与步之间尝试改动之前，训练就结束了。"


def between_steps(*, headline: str, changes: int, minutes: float) -> str:
    if not changes:
        return f"{headline}。"
    return f"{headline}。将在步与步之间尝试 {changes} 个改动，最多 {minutes:g} 分钟；训练照常进行。"
