"""The input pipeline: preparing batches, starting workers, batch hand-over, and locks."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix, percent, then
from perfdoctor.reports.chinese.slow_calls import CHEAPER_CALLS


def preparing() -> str:
    return "在 CPU 上准备输入数据"


def preparing_refuted() -> str:
    return "把一个批次留在内存中，反复用它训练几步：如果速度不变，拖慢作业的就不是输入数据。"


# Where the English advice is code, it is taken from there.
_CHEAPER = {
    "sound": "把音频保存为模型所需的采样率，并且只读取需要的片段（soundfile.read 的 start 和 frames 参数）。",
    "video": "保存关键帧密集的短片段，尺寸与模型输入一致，并且只解码需要的帧（torchcodec 的 get_frames_at）。",
    "programs": "每启动一个程序都要花几毫秒。请在进程内用库读取这类文件"
    "（用 torchcodec 或 PyAV 代替 ffmpeg，用 soundfile 代替 sox），让一个程序一次处理许多样本，"
    "或者在训练前一次处理完所有文件。",
    "arrays": "对整个数组做运算，不要逐元素处理，并去掉模型用不到的部分。",
    "": "把对数字的循环换成对整个数组的运算，把对文本的循环换成用 C 或 Rust 编写的分词器或解析器，"
    "并缓存反复计算的结果（functools.lru_cache）。",
    **CHEAPER_CALLS,
}


def cheaper(
    *,
    line: str | None,
    loader: bool,
    share: float,
    no_more_workers: str | None,
    call: str | None,
    part: float,
    kind: str,
) -> Fix:
    what = f" {line} " if line else "数据集的变换" if loader else "准备输入数据的代码"
    named = f"其中 {percent(part)} 花在 {call}。" if call else ""
    return fix(
        f"降低{what}的开销",
        f"训练进程有 {percent(share)} 的时间在等待输入数据准备好。{named}{then(no_more_workers)}",
        _CHEAPER.get(kind, ""),
    )


def faster_server(*, server: str) -> Fix:
    return fix(
        f"让进程 {server} 跑在前面",
        "它不属于这个作业，而作业在管道或连接的另一端等待它产出的数据。",
        "同时运行多个这样的进程，给它更多的核，或把它产出的数据存成文件供作业读取。",
    )


def open_once(*, call: str, share: float) -> Fix:
    return fix(
        "存有许多样本的文件只打开一次",
        f"{call} 占用 {percent(share)} 的时间：每次打开这种文件都要先读取各个样本的位置。"
        "如果从中取多个样本，每个进程只需打开一次。",
    )


def table_once(*, part: float) -> Fix:
    return fix(
        "把表格一次转换成张量",
        "每取一行都要新建一个带索引和类型的对象：要用十分之一毫秒，而从张量中取同样的内容只要几微秒。"
        f"准备工作的 {percent(part)} 花在 DataFrame 里。",
    )


def fewer_passes(*, place: str, share: float) -> Fix:
    return fix(
        "各步共用的准备工作不必每个 epoch 都做",
        f"{place} 在训练循环之外运行，每个 epoch 一次，占 {percent(share)} 的时间。"
        "数据加载 worker 只制作批次，替代不了它。如果每次结果相同，做一次就够；"
        "如果样本的顺序或选择可以沿用几个 epoch，每四个 epoch 做一次即可。",
    )


def prepare_once(*, kind: str, arrow: bool, drawn: float | None) -> Fix:
    why = (
        "每个 epoch 的 token 都一样，不必每次重新生成。"
        if kind == "text"
        else "每个 epoch 都相同的结果可以保存下来：解码、缩放、过滤或分词之后的样本。"
    )
    if drawn is not None:
        why += f"随机取数之后的部分则不然：准备工作的 {percent(drawn)} 在其后。"
    return fix("不变的部分只做一次", why)


def rows_in_order(*, by_number: bool) -> Fix:
    now = "这个数据集经过打乱或选取的行，要通过行号列表逐行查找" if by_number else "这个数据集的行是逐行查找的"
    return fix(
        "按顺序读取数据集的行",
        f"{now}。按顺序读取时一次就是一个批次；打乱的是分片和缓冲区里的内容。",
    )


def decode_on_gpu(*, kind: str) -> Fix:
    return fix("在 GPU 上解码", "GPU 的解码器是独立单元，几乎不占用模型的算力。")


def augment_on_gpu() -> Fix:
    return fix(
        "在 GPU 上对整个批次做数据增强",
        "CPU 准备数据时 GPU 在等待，而翻转、裁剪和归一化在 GPU 上很便宜。每个样本必须各自取随机数："
        "torchvision 的变换对整个批次只取一次，Kornia 的变换对每个样本各取一次。",
    )


def sleeping() -> str:
    return "准备输入时在睡眠"


def sleeping_refuted() -> str:
    return "跑几步时去掉睡眠：如果速度不变，当时等的就是别的东西。"


def no_sleep(*, line: str | None, share: float) -> Fix:
    return fix(
        f"不要在{f' {line} ' if line else '这里'}睡眠",
        f"有 {percent(share)} 的时间在固定长度的睡眠（time.sleep）中流逝，其间什么也没有准备。"
        "如果是反复查看某样东西，就改为等待它（进程之间用 multiprocessing 的 Queue 或 Event）；"
        "如果是遵守请求频率的限制，就一次请求更多；出错之后，在后台重试。",
    )


def sampling() -> str:
    return "抽取下一批次的索引"


def sampling_refuted() -> str:
    return "把事先抽好的索引列表作为 sampler 传入：如果速度不变，拖慢作业的就不是抽取索引。"


def draw_many(*, line: str | None, share: float) -> Fix:
    return fix(
        f"在 {line} 一次抽取多个批次的索引" if line else "让采样器一次抽取多个批次的索引",
        f"DataLoader 的采样器在训练进程的主线程中运行，占用 {percent(share)} 的时间。"
        "增加 worker 没有帮助：它们只能拿到采样器抽好的索引。"
        "抽取的依据（权重、经过筛选或排序的列表）在相邻批次之间很少变化。",
    )


def draw_ahead() -> Fix:
    return fix(
        "用一个线程提前抽取",
        "由一个线程填充索引队列，它在模型计算时工作，前提是抽取时不占用 GIL。",
    )


def keep_iterator(*, line: str | None, first: float, share: float) -> Fix:
    return fix(
        f"保留 {line} 处 DataLoader 的迭代器" if line else "保留 DataLoader 的迭代器",
        f"在 DataLoader 中花费的时间有 {percent(first)} 用于取迭代器的第一个批次。"
        f"每个迭代器一开始就抽取整个 epoch 的索引，占用 {percent(share)} 的时间；"
        "如果迭代器取几个批次就结束，这些索引几乎全部被丢弃。",
    )


def starting() -> str:
    return "重新启动 worker 进程"


def starting_refuted() -> str:
    return "设 num_workers=0 或只用一个进程池短跑一次：如果停顿仍在，原因就不是启动 worker 进程。"


def keep_workers(*, starts: float | None, life: float | None) -> Fix:
    why = "每个新的 worker 进程在产出第一个批次之前，都要重新 fork、导入模块并打开数据集。"
    if starts is not None:
        why = f"每分钟启动了 {starts:.0f} 个 worker 进程。{why}"
    if life is not None:
        why += f"一个 worker 进程只存活 {life:.2g} 秒。"
    return fix(
        "在 epoch 之间保留 worker 进程",
        f"{why}如果已经设置了 persistent_workers，那就是 DataLoader 本身被反复创建：只创建一次即可。"
        "保留的 worker 进程一直使用它们启动时的数据集："
        "在 epoch 之间改动的内容（例如重新抽取的样本）要移到 __getitem__ 里。",
    )


def longer_epochs() -> Fix:
    return fix(
        "让 epoch 更长",
        "如果一个 epoch 只有几个批次，就换用更长的采样器：遍历它一遍相当于许多 epoch，而 worker 进程只启动一次。",
    )


def fork_server() -> Fix:
    return fix(
        "用 forkserver 启动 worker 进程",
        "这里的 worker 进程是 spawn 出来的：每个都要重新导入全部模块。fork server 只导入一次。",
    )


def hand_over() -> str:
    return "批次从 worker 进程交接到训练进程（IPC，在拷贝到 GPU 之前）"


def hand_over_refuted() -> str:
    return "让数据集返回一个字节数相同的张量：如果等待仍在，原因就不是交接。"


def whole_batches() -> Fix:
    return fix(
        "直接从张量中取出批次",
        "样本就是内存中张量的行：逐行取出、堆叠、再把批次发给训练进程，做了许多不必要的工作。",
    )


def fewer_tensors(*, slack: float | None) -> Fix:
    spare = f"worker 进程有 {percent(slack)} 的时间无事可做；增加 worker 没有帮助。" if slack else ""
    return fix(
        "每个批次只返回少量大张量",
        f"批次中的每个张量或 Python 对象都要单独序列化、发送和重建，而重建由训练进程承担。{spare}",
    )


def share_by_name(*, part: float) -> Fix:
    return fix(
        "让 worker 进程按名称共享张量",
        "默认情况下，批次中的每个张量都要经由一条单独的连接传递一个打开的文件："
        f"占取走批次用时的 {percent(part)}。传递文件名更便宜；但作业被强制结束后，这些文件会留在 /dev/shm 中。",
    )


def pin_less() -> Fix:
    return fix(
        "减轻锁页线程的负担",
        "训练进程的一个线程把每个批次的每个张量拷贝到锁页内存，两次拷贝之间都持有 GIL。",
        "把一个批次打包成一个张量，或给批次的类定义 pin_memory() 方法，让它只锁定一块缓冲区。",
    )


def out_of_order(*, slack: float) -> Fix:
    return fix(
        "不要等待最慢的 worker 进程",
        f"训练进程等待时，worker 进程有 {percent(slack)} 的时间空闲：批次是按顺序交付的。",
    )


def without_workers() -> Fix:
    return fix(
        "试试不用 worker 进程",
        "num_workers=0 时不启动 worker，也不需要交接；如果准备一个批次比这更便宜，这样更快。",
    )


def queueing() -> str:
    return "排队等待作业自己的锁"


def queueing_refuted() -> str:
    return (
        "只用一个 worker 进程（若是训练进程在排队，则只用一个训练进程）运行：如果速度几乎不变，"
        "就是锁让它们只能轮流工作；如果速度随数量下降，就不是。"
    )


def own_resource(*, line: str | None) -> Fix:
    return fix(
        "让每个 worker 进程使用自己的资源，而不是共享的锁",
        f"一个 worker 进程持有锁时其他的都在排队，所以多个 worker 进程只有一个的速度。{_taken_at(line)}",
    )


def lock_update(*, line: str | None) -> Fix:
    return fix(
        "只在更新权重时持有锁",
        f"一个训练进程持有锁时，其他进程都停着，合起来只有一个进程那么快。{_taken_at(line)}梯度是各进程自己的，只有权重是共享的。",
    )


def _taken_at(line: str | None) -> str:
    return f"这个锁在 {line} 获取。" if line else ""


def lock_shared_part() -> Fix:
    return fix("只在访问共享部分时持有锁", "持有锁的时间，就是其他所有进程停下来的时间。")


def lock_copy(*, line: str | None) -> Fix:
    return fix("只在复制受保护的内容时持有锁", f"持有锁的时间，就是其他所有线程停下来的时间。{_taken_at(line)}")
