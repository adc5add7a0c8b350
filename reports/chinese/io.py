"""Input and output: reading from storage and networks, paging, and writing checkpoints and logs."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports import text
from perfdoctor.reports.chinese.phrases import amount, fix, percent, then


def reading() -> str:
    return "从存储读取数据"


def reading_refuted() -> str:
    return "把同样的文件连续读两遍：如果第二遍（来自页缓存）和第一遍一样慢，原因就不是存储。"


def fewer_bytes(*, share: float, no_more_workers: str | None) -> Fix:
    return fix(
        "减少读取的字节数",
        f"作业有 {percent(share)} 的时间在等待读取。{then(no_more_workers)}",
        "让样本占用更小：压缩、缩放到训练尺寸、保存为 uint8 或 float16。",
    )


def raise_limit(*, used: float, writes: bool, operations: bool) -> Fix:
    what = f"每秒允许{'写入' if writes else '读取'}的{'请求数' if operations else '字节数'}"
    return fix(
        "提高控制组对该存储的限制", f"在等待期间，作业用掉了{what}的 {percent(used)}：请求在到达设备之前就被拦住。"
    )


def limit_reached() -> str:
    return "增加 worker 没有帮助：它们共用控制组的同一个限制。"


def held_back(*, busy: float, share: float) -> str:
    return (
        f"增加 worker 多半没有帮助：读取者有 {percent(share)} 的时间在等待，"
        f"而设备只有 {percent(busy)} 的时间在处理请求。两者之间有东西拦住了请求，例如这个容器之上的控制组的限制。"
    )


def device_full(*, busy: float) -> str:
    return f"增加 worker 没有帮助：设备有 {percent(busy)} 的时间在处理请求。"


def mapped_pieces(*, faults: Evidence) -> Fix:
    return fix(
        "以更大的块读取映射文件",
        f"大部分字节来自映射文件的缺页（{amount(faults)}），一次只有几页，而不是来自 read 调用。"
        "一次 read 调用就能取得整个样本。也可以只打乱由相邻样本组成的块，而不是单个样本。",
    )


def buffered_reads(*, line: str, size: float, rate: float, share: float) -> Fix:
    return fix(
        f"在 {line} 一次读取许多字节",
        f"这个作业每秒做 {rate:,.0f} 次 read 调用，每次只要 {text.size(size)}。"
        f"单是这些调用就占用 {percent(share)} 的时间；有缓冲区，一次调用就能取来许多字节。"
        "文件打开时默认带缓冲区，管道和套接字则如下设置。",
    )


def larger_files(*, size: float, rate: float | None) -> Fix:
    calls = f"（每秒 {rate:,.0f} 次调用）" if rate is not None else ""
    return fix(
        "把样本打包成更大的文件",
        f"一次 read 调用平均只请求 {text.size(size)}{calls}：开销在于请求的次数。",
        "把样本写成 100 MB 或更大的分片（tar 配合 WebDataset、Parquet、LMDB），按顺序读取分片，在缓冲区内打乱。",
    )


def copy_to_local(*, path: str, system: str, available: float | None) -> Fix:
    return fix(
        "训练前把数据拷贝到本地存储",
        f"{path} 位于网络文件系统（{system}）。本地 NVMe 磁盘完成一次小读取只需十分之一毫秒，服务器则需要几毫秒。",
    )


def keep_in_memory(*, path: str | None, available: float | None) -> Fix:
    room = f"可用内存有 {available / 1000:,.1f} GB。" if available is not None else ""
    return fix("如果放得下，就把数据留在内存中", f"读取落到了设备上，而没有命中页缓存。{room}")


def part_per_host(*, refaults: float) -> Fix:
    return fix(
        "每台主机只用一部分数据训练",
        f"页缓存装不下数据：每秒有 {refaults:,.0f} 页刚被丢弃就又要读取。",
        "给每台主机分配固定的一部分文件，小到能放进它的内存。",
    )


def fetching() -> str:
    return "等待来自网络的数据"


def fetching_refuted() -> str:
    return "用本地文件提供同样的样本：如果速度不变，拖慢作业的就不是网络。"


def at_the_same_time(*, received: Evidence | None) -> Fix:
    rate = f"现在的速率是 {amount(received)}。" if received is not None else ""
    return fix(
        "同时获取一个批次中的样本",
        f"读取者的时间花在等待应答上，而不是计算上：不需要更多的核，就可以有许多请求同时等待。{rate}",
    )


def local_copy() -> Fix:
    return fix(
        "在本地保留一份副本",
        "取过一次的数据，下一个 epoch 不必再取。",
        "首次使用时把每个对象写入 $TMPDIR/cache，以后先到那里查找。",
    )


def larger_objects() -> Fix:
    return fix(
        "用保持的连接获取更少、更大的对象",
        "每个请求至少要等待一个往返；新建连接要等待两到三个往返。",
        "使用 100 MB 或更大的分片，并且每个 worker 进程只用一个会话（requests.Session、urllib3.PoolManager）。",
    )


def further_ahead(*, workers: int) -> Fix:
    return fix(
        "提前获取更多批次",
        "默认情况下每个 worker 进程只提前准备两个批次；更多的批次可以掩盖偶尔迟到的应答，但会占用内存。",
    )


def paging() -> str:
    return "从交换区换入内存"


def paging_refuted() -> str:
    return "作业运行时观察 vmstat 1 的 si 列：如果一直是 0，作业就没有在等待交换区。"


def fewer_workers(*, workers: int) -> Fix:
    return fix(
        f"worker 进程少于 {workers} 个，并减少预取的批次",
        "每个 worker 进程都保存一份它所访问数据的副本，外加 prefetch_factor 个准备好的批次。",
    )


def no_python_objects(*, workers: int) -> Fix:
    return fix(
        "不要用 Python 对象存放数据集",
        "列表和字典会被逐页复制到每个 worker 进程中，因为读取它们就会改变引用计数。"
        if workers
        else "Python 对象占用的内存是它所保存的数字或文字的好几倍。",
        "用 NumPy 数组或张量保存文件名、标签和偏移量；大数组用内存映射：numpy.load(path, mmap_mode='r')。",
    )


def more_memory(*, limit: float | None) -> Fix:
    capped = f"cgroup 的上限是 {limit / 1e9:.3g} GB。" if limit else ""
    return fix("给作业更多内存", f"内存不足，页面在内存和交换设备之间来回搬移。{capped}")


def checkpoints() -> str:
    return "保存检查点"


def checkpoints_refuted() -> str:
    return "几百步内不保存检查点：如果速度不变，原因就不是它。"


def save_behind(*, path: str | None, share: float, line: str | None, together: bool, gpu: bool) -> Fix:
    done = f"保存的位置在 {line}。" if line else ""
    return fix(
        "边训练边保存",
        f"写入{f' {path} ' if path else '检查点'}时训练进程停止不动：占 {percent(share)} 的时间。{done}"
        "训练步内只需要在内存中复制一份，模型和优化器的状态都要复制。",
    )


def save_less_often(*, share: float, times: int, bearable: float, loop: str, when: str) -> Fix:
    return fix(
        f"把保存频率降到 {times} 分之一",
        f"按现在的保存频率，{percent(share)} 的时间花在保存上；"
        f"频率降到 {times} 分之一，就只剩不到 {percent(bearable)}。",
    )


def save_unpacked(*, share: float, package: str) -> Fix:
    return fix(
        "保存时不压缩",
        f"保存占 {percent(share)} 的时间，其中大部分用于压缩：它只用一个核，而权重几乎不会变小"
        "（20 MB 随机数用 zlib 要 0.53 秒而不是 0.02 秒，只小了 7%；降低压缩级别也快不了多少）。",
    )


def faster_storage() -> Fix:
    return fix("先保存到更快的存储", "先写到本地高速磁盘，再由另一个进程搬走，训练步就能更早继续。")


def logs() -> str:
    return "记录日志（指标、图片、输出）"


def logs_refuted() -> str:
    return "去掉日志，或把日志写到 /dev/null：如果速度不变，原因就不是记录日志。"


def log_less_often(*, path: str | None, share: float, line: str | None, times: int, loop: str, when: str) -> Fix:
    return fix(
        f"把日志频率降到 {times} 分之一",
        f"写入{f' {path} ' if path else '日志、指标或图片'}占用 {percent(share)} 的时间"
        f"{f'，位置在 {line}' if line else ''}。",
    )


def quiet_library(*, package: str, line: str | None, share: float) -> Fix:
    return fix(
        f"不记录 {package} 为调试而写的日志",
        f"{percent(share)} 的时间花在 {package} 工作时{f'（{line}）' if line else ''}自己产生的日志上。"
        "根日志记录器的级别为 DEBUG 时，会收下所有库的记录。",
    )


def no_flush() -> Fix:
    return fix(
        "不要每一行都刷到磁盘",
        "flush 只是把这一行交给系统；fsync 以及以同步方式打开的文件则要等待设备。",
    )


def faster_reader() -> Fix:
    return fix("让读取日志的一方跟上", "日志写入的管道或连接已满：一行日志要等另一端的程序读走其他行才能写入。")


def another_thread(*, logger: bool) -> Fix:
    return fix("由另一个线程写", "这样训练步只需要把记录放进队列。")
