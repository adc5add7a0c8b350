"""Between ranks: bytes, messages, DataParallel, unobserved ranks, and collectives that share a GPU with kernels."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.chinese.phrases import amount, fix, percent, then


def fewer_channels(*, times: float, longer: float, step: Evidence | None, network: str | None) -> Fix:
    of_step = f"，每步 {amount(step)}" if step else ""
    return fix(
        "让集合通信占用更少的 SM",
        f"与集合通信同时运行时，kernel 的耗时是单独运行时的 {times:.2g} 倍：占 {percent(longer)} 的时间{of_step}。"
        f"集合通信的每个 channel 占用一个 SM，所有 channel 一起占用显存带宽。{then(network)}",
    )


def move_overlap(*, way: str) -> Fix:
    return fix(
        "移动重叠的位置",
        "集合通信如果更早开始，或与不占满 SM 和显存带宽的 kernel 同时运行，就有更多时间，干扰也更小。",
    )


def network_carries(*, alone: Evidence, behind: Evidence) -> str:
    return f"原因不是网络：集合通信单独运行时达到 {amount(alone)}，与 kernel 同时运行时只有 {amount(behind)}。"


def held_up(*, network: str | None) -> str:
    return f"其中大部分是因为有 kernel 与集合通信同时运行。{then(network)}"


def high_priority(*, times: float, share: float, network: str | None) -> Fix:
    return fix(
        "让集合通信使用高优先级的流",
        f"与 kernel 同时运行时，集合通信的耗时是单独运行时的 {times:.2g} 倍，代价是 {percent(share)} 的时间。"
        f"{then(network)}更快的网络没有帮助。",
    )


def besides_gradients() -> str:
    return "在 rank 之间交换梯度以外的数据"


def besides_gradients_refuted() -> str:
    return "让若干步不做这一交换：如果这些步用时不变，它就不是原因。"


def exchange_rarely(*, line: str | None, share: float) -> Fix:
    return fix(
        f"让 {line} 的交换更少发生" if line else "更少地交换",
        f"除训练本身所需之外，脚本自己调用的集合通信占 {percent(share)} 的时间。"
        "损失函数需要的必须保留，其余不必每步都交换。所有 rank 必须在相同的步调用它们。",
    )


def keep_buffers(*, share: float) -> Fix:
    return fix(
        "不要每步都发送缓冲区",
        f"DistributedDataParallel 在每次前向传播之前把 rank 0 的缓冲区发给所有 rank，占 {percent(share)} 的时间。"
        "不变的缓冲区（掩码、位置表）不必发送；批次的滑动统计量（BatchNorm）只有评估才需要："
        "不发送时，参与评估的各个 rank 用自己的统计量。",
    )


def gather_tensors() -> Fix:
    return fix(
        "收集张量，而不是对象",
        "对象的集合通信要序列化对象、先交换长度，并在每个 rank 上反序列化所有 rank 的对象。"
        "放在一个张量里的数字只需一次交换。",
    )


def moving() -> str:
    return "在 rank 之间传输数据"


def moving_refuted() -> str:
    return (
        "不做梯度交换跑几步（在前向和反向传播外包上 model.no_sync()，或用 set_requires_gradient_sync(False)）："
        "如果耗时不变，原因就不是梯度交换。"
    )


def exchange_seldom(
    *, world: int, share: float, received: Evidence | None, within: bool, sharded: bool, way: str
) -> Fix:
    rest = "；参数仍像以前一样频繁地聚合" if sharded else ""
    moved = f"有 {amount(received)} 经过{'本机回环' if within else '网络'}。" if received else ""
    return fix(
        "每隔几步才交换一次梯度",
        f"{_all(world)} rank 有 {percent(share)} 的时间在做交换。{moved}"
        f"把梯度累积 4 步再交换，梯度的字节数就只有四分之一{rest}。",
    )


def exchange_once(*, line: str, when: str, sharded: bool, way: str) -> Fix:
    rest = "参数仍像以前一样频繁地聚合。" if sharded else ""
    return fix(
        "每次更新只交换一次梯度",
        f"{line} 处的循环为一次更新做多次反向传播，每次都交换梯度。"
        f"交换它们的总和就够了：只有最后一次需要交换，训练结果不变。{rest}",
    )


def gather_once(*, way: str, used: float | None) -> Fix:
    room = f"还有 {percent(1 - used)} 的显存可用。" if used is not None else "这需要相应的显存。"
    return fix(
        "在前向和反向传播之间保留参数",
        f"前向和反向传播都要各聚合一次参数：保留下来，就能少传三分之一的字节。{room}",
    )


def sharded_half_precision(*, way: str) -> Fix:
    return fix(
        "用 16 位传输参数和梯度",
        "字节数减半，矩阵乘法也用 16 位；优化器仍保留 32 位的参数。",
    )


def prefetch_parameters(*, way: str) -> Fix:
    return fix("在计算当前模块时聚合下一个模块的参数", "如果没有提前请求，每个模块都要等待自己的参数。")


def shard_within_host(*, way: str, ranks: int) -> Fix:
    return fix(
        "只在每台主机内部切分模型",
        f"这样参数来自同一主机的 {ranks} 个 rank，主机之间只传梯度。每台主机必须放得下整个模型。",
    )


def half_precision(*, nccl: bool, by_hand: bool, way: str) -> Fix:
    range_of_it = "" if nccl else "float16 超过 65,504 就会溢出：如果梯度接近这个值，就缩小损失。"
    return fix("用 16 位传输梯度", f"同样的梯度只需一半的字节。{range_of_it}")


def use_ddp() -> Fix:
    return fix(
        "把梯度交给 DistributedDataParallel",
        "它在反向传播期间就发送梯度；这里没有看到它的任何栈帧。",
    )


def overlap(*, way: str) -> Fix:
    return fix(
        "让梯度交换与反向传播重叠",
        "一个桶的梯度一算好就会发送；查找未使用的参数和过大的桶都会推迟发送。",
    )


def use_nccl() -> Fix:
    return fix("确认使用的是 NCCL", "它直接在 GPU 之间传输数据；其他后端要经过主机内存。")


def small_messages() -> str:
    return "在 rank 之间交换大量小消息"


def small_messages_refuted() -> str:
    return "让每次交换的字节数变成十倍：如果每步耗时几乎不变，开销就在交换次数；如果耗时变成十倍，就在字节数。"


def send_as_one(*, share: float, size: Evidence | None) -> Fix:
    small = f"一个数据包平均只有 {amount(size)}。" if size else ""
    return fix(
        "把许多小张量合并成一个发送",
        f"每次集合通信都要一轮唤醒，无论传输的字节多么少：占 {percent(share)} 的时间。{small}",
    )


def no_sync_batch_norm() -> Fix:
    return fix("去掉 SyncBatchNorm", "它的每一层在前向和反向传播中都要交换统计量。")


def use_buckets() -> Fix:
    return fix(
        "把梯度交给 DistributedDataParallel",
        "它把梯度装进 25 MB 的桶，在反向传播期间发送。",
    )


def fewer_rounds(*, way: str) -> Fix:
    return fix(
        "每隔几步才交换一次梯度",
        "每次反向传播都要交换梯度，并且要等待这一轮消息，无论模型多小。"
        "累积 4 步只需要四分之一的轮数，把批次增大到 4 倍也一样。",
    )


def large_buckets(*, way: str) -> Fix:
    return fix("一次交换更多", "每个桶或单元都是一次单独的交换。")


def fewer_metrics() -> Fix:
    return fix(
        "降低归约指标的频率，并去掉 barrier",
        "只用于打印的指标不需要每个 rank 每一步都精确；barrier() 只会等待。",
    )


def one_process(*, world: int, own_ranks: bool, threads_set: bool) -> Fix:
    by = "torch.set_num_threads" if threads_set else "OMP_NUM_THREADS"
    return fix(
        "用一个进程训练",
        f"{_all(world)} rank 都在这一台主机的核上计算：一个进程用 {world} 倍的批次、与核数同样多的线程"
        f"（用 {by} 设定），工作量相同，而且不需要交换。",
    )


def _all(world: int) -> str:
    return "两个" if world == 2 else f"全部 {world} 个"


def scatter_and_gather() -> str:
    return "nn.DataParallel 的分发、复制和汇集"


def scatter_and_gather_refuted() -> str:
    return "不用 nn.DataParallel，在一块 GPU 上运行：如果每秒样本数按比例下降，它就没有造成损失。"


def no_data_parallel(*, gpus: float | None) -> Fix:
    count = f"全部 {gpus:g} 块 GPU" if gpus else "所有 GPU"
    return fix(
        "使用 DistributedDataParallel",
        f"nn.DataParallel 每一步都把模型复制到每块 GPU，并用一个 Python 进程驱动{count}。",
    )
