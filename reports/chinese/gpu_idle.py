"""What leaves a GPU idle: slow launches, waits for its queue to drain, copies, full memory, and the job's start."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.chinese.phrases import amount, fix, percent


def launching() -> str:
    return "启动零碎的 GPU kernel"


def launching_refuted() -> str:
    return "把批大小翻倍：如果每步耗时不变，拖慢它的就是 kernel 启动；如果翻倍，就是 GPU 的计算。"


def every_launch_waits() -> str:
    return "每次启动都因此要等到它的 kernel 结束。"


def cuda_graphs() -> Fix:
    return fix("用 CUDA graph 编译", "小 kernel 之间 GPU 会无事可做；一个 CUDA graph 一次启动一步的全部 kernel。")


def between_graphs(*, line: str | None) -> Fix:
    at = f"，主要在 {line}" if line else ""
    return fix(
        "减少 CUDA graph 之间的启动",
        "GPU 的大部分工作已经以 graph 启动。主机准备下一个 graph 时 GPU 在等待："
        f"拷贝它的输入，生成索引，再启动它{at}。",
    )


def larger_batch(*, used: float | None, loader: bool) -> Fix:
    memory = f"已用显存：{percent(used)}。" if used is not None else ""
    return fix("使用更大的批次", f"每步的启动次数不变，而每个 kernel 工作得更久。{memory}")


def draining() -> str:
    return "等待 GPU 的队列排空再填满"


def draining_refuted() -> str:
    return "用 torch.cuda.set_sync_debug_mode('warn') 运行一次：如果它没有指出训练步中的任何一行，那里就没有同步。"


def keep_values(*, line: str | None) -> Fix:
    return fix(
        f"让 {line} 的数值留在 GPU 上" if line else "让训练步中的数值留在 GPU 上",
        "读取一个数值（.item()、.cpu()、float(loss)、print、if tensor:）要等到 GPU 完成已提交的全部工作，"
        "之后 GPU 又要空闲到新的工作到来。",
    )


def copy_to_pinned() -> Fix:
    return fix("不等待地拷贝", "拷贝到主机时，除非目标是锁页内存，否则都要等待。")


def copying() -> str:
    return "主机与 GPU 之间的拷贝"


def copying_refuted() -> str:
    return "反复使用一个已在 GPU 上的批次：如果每步耗时不变，原因就不是拷贝。"


def no_copy_overlaps() -> str:
    return "拷贝因此不能与任何工作重叠。"


def overlap_copies() -> Fix:
    return fix("不等待地拷贝", "批次已在锁页内存中，所以拷贝可以与计算重叠。")


def pin_batches(*, loader: bool) -> Fix:
    return fix("不等待地拷贝", "从普通内存拷贝要经过一小块锁页缓冲区，主机每次都要等待。")


def fewer_bytes(*, received: Evidence | None) -> Fix:
    return fix(
        "传输更少的字节",
        f"{f'有 {amount(received)}' if received else '所有批次都'}经过 PCIe。",
        "以 uint8 传输图像，到 GPU 上再转换：batch.to(device, non_blocking=True).float().div_(255)。",
    )


def make_on_gpu() -> Fix:
    return fix("在使用张量的地方创建它", "在主机上创建的张量必须拷贝过去。")


def out_of_memory() -> str:
    return "腾出显存"


def out_of_memory_refuted() -> str:
    return "读取两次 torch.cuda.memory_stats()['num_alloc_retries']：如果它不变，分配器就没有遇到显存不足。"


def every_tensor_allocates() -> str:
    return "每个张量都因此要执行一次 cudaMalloc 和一次 cudaFree。"


def growing_segments(*, used: float | None) -> Fix:
    return fix("让分配器的段可以增长", f"{_how_full(used)}，释放后大小不合适的显存块被归还，又重新申请。")


def keep_cache() -> Fix:
    return fix("从训练步中去掉 torch.cuda.empty_cache()", "它归还的显存，下一步又要重新申请。")


def less_memory(*, used: float | None) -> Fix:
    return fix(
        "减少显存占用",
        f"{_how_full(used)}。",
        "把 batch_size 减半并累积两步的梯度，或使用激活重计算："
        "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)。",
    )


def _how_full(used: float | None) -> str:
    return "显存不足" if used is None else f"显存已用 {percent(used)}"


def done_once() -> str:
    return "作业启动时只做一次的工作（编译、加载 kernel、试选算法、首次分配）"


def done_once_refuted() -> str:
    return "对第一百步之后的训练步做 trace：如果 GPU 在那里等待同样的调用，它们就不是只做一次。"


def not_projected(*, fills: bool) -> str:
    if fills:
        return "所以这是启动阶段的 trace：它不能说明后续的训练步，也不能说明它们能有多快。"
    return "后续的训练步不再做这些工作，所以不据此预计训练的加速。"


def trace_later() -> Fix:
    return fix("对更晚的训练步做 trace", "等全部加载、编译和分配完成之后，才能看出训练的时间花在哪里。")


def keep_caches(*, compiling: bool) -> Fix:
    return fix(
        "如果作业经常启动，就保留启动时的产物",
        "作业结束后仍然保留的缓存可以省去编译；一次加载全部 kernel 可以消除最初几步中的停顿。",
    )
