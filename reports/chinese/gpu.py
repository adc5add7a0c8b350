"""What a busy GPU is busy with, and what slows it."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.chinese.phrases import amount, blocks_run_again, fix, percent


def computing() -> str:
    return "模型自身在 GPU 上的计算"


def computing_refuted() -> str:
    return "把批大小减半：如果每步耗时和以前一样，时间就不是花在计算上。"


def same_work() -> Fix:
    return fix(
        "让所有 rank 的工作量相同",
        "同样的 kernel 在那里和在其他 rank 上耗时相同：它的 kernel 更多或更大。",
        "按长度把样本分桶，或按 token 数填充批次。",
    )


def check_late_gpu(*, times: float) -> Fix:
    return fix("检查掉队 rank 的 GPU", f"同样的 kernel 在那里的耗时是其他 rank 上的 {times:.2g} 倍。")


def compare_kernels() -> Fix:
    return fix(
        "区分硬件慢和工作量大",
        "如果同样形状的同样 kernel 在那里耗时更长，就是硬件的问题；如果 kernel 更多或更大，就是工作量的问题。",
    )


def leave_rank_out(*, rank: int | None) -> Fix:
    return fix(
        f"不使用 rank {rank} 的 GPU 运行",
        "一块慢的 GPU 决定了所有 GPU 的速度。",
        "去掉那台主机重新启动作业，看变慢的现象是否消失。",
    )


def move_layers(*, stage: int | None) -> Fix:
    return fix(
        f"从流水线阶段 {stage} 移走一些层",
        "所有阶段都在等待工作量最大的那个。最后一个阶段还要计算输出头和损失。",
        "Megatron：--decoder-last-pipeline-num-layers N 设得更小；torch.distributed.pipelining：在别处切分模型。",
    )


def more_micro_batches(*, waiting: float, way: str) -> Fix:
    return fix(
        "把批次分成更多的 micro-batch",
        f"流水线的各个阶段有 {percent(waiting)} 的时间在互相等待：每一步里流水线填充和排空的时候，"
        "以及某个阶段工作更多的时候。micro-batch 数量加倍、大小减半，前者的时间就减半。",
    )


def same_cost() -> Fix:
    return fix(
        "让所有 rank 的批次开销相同",
        "样本长短不一，每一步最慢的 rank 都不同，而所有 rank 都要等它。",
        "按长度把样本分桶、打包样本，或按 token 数而不是样本数填充批次。",
    )


def checkpoint_less(*, again: float, used: float | None, full: bool, loop: str) -> Fix:
    return fix(
        "减少激活重计算的模块，或不用激活重计算",
        blocks_run_again(again, used, "显存", full=full),
    )


def checkpoint_selectively(*, again: float) -> Fix:
    return fix(
        "选择性激活重计算",
        "矩阵乘法和注意力占前向传播的大部分；保留它们的结果就不必重新计算，而计算便宜的部分仍然不占显存。"
        f"收益是这 {percent(again)} 中的一部分。",
    )


def moving_memory() -> str:
    return "GPU 的显存读写"


def moving_memory_refuted() -> str:
    return "编译模型的逐元素部分：如果每步耗时不变，它等待的就不是显存读写。"


def fuse(*, memory: Evidence | None, tensor: Evidence | None) -> Fix:
    counters = f"显存读写占 {amount(memory)}，Tensor Core 占 {amount(tensor)}。" if memory and tensor else ""
    return fix("融合逐元素运算", f"{counters}每个逐元素运算都要完整地读写一遍它的张量。")


def halve_bytes(*, bfloat16: bool, loop: str, trains: bool) -> Fix:
    kind = "bfloat16" if bfloat16 else "float16"
    return fix("把字节数减半", f"{kind} 的激活只需要 float32 一半的读写量。")


def fused_attention(*, softmax: float | None) -> Fix:
    part = f"单独的 softmax kernel 占 kernel 时间的 {percent(softmax)}。" if softmax else ""
    return fix("使用融合的注意力", f"把得分矩阵写出来的注意力，搬运的字节远多于必要的量。{part}")


def channels_last(*, layout: float | None) -> Fix:
    part = f"，占 kernel 时间的 {percent(layout)}" if layout else ""
    return fix(
        "让卷积使用 channels last 布局",
        f"否则卷积要转换布局{part}。如果批次大小固定，还可以让 cuDNN 只查找一次最快的算法。",
    )


def small_kernels() -> str:
    return "工作量太小、用不满 GPU 的 kernel"


def small_kernels_refuted() -> str:
    return "把批大小翻倍：如果每秒样本数没有上升，kernel 就不是太小。"


def larger_batch(*, active: Evidence | None, used: float | None, loader: bool) -> Fix:
    part = f"（SM 有 {amount(active)}在工作）" if active else ""
    room = f"还有 {percent(1 - used)} 的显存可用。" if used is not None else ""
    return fix("使用更大的批次", f"kernel 只用到 GPU 的一部分{part}。{room}")


def merge_kernels() -> Fix:
    return fix("合并小 kernel", "更大的 kernel 可以让更多 SM 有活干。")


def full_precision() -> str:
    return "全精度计算"


def full_precision_refuted() -> str:
    return "在 torch.autocast 下跑几步：如果耗时不变，时间就不是花在矩阵乘法上。"


def allow_tf32_again(*, name: str) -> Fix:
    return fix(f"取消设置 {name}", "它被设为 0，处处禁用了 TF32。")


def bfloat16(*, busy: Evidence | None, loop: str, trains: bool) -> Fix:
    return fix(_mixed_precision(trains=trains), f"{_tensor_cores(busy)}；bfloat16 的矩阵乘法可以用上它们。")


def float16(*, busy: Evidence | None, capability: float, loop: str, trains: bool) -> Fix:
    return fix(
        _mixed_precision(trains=trains),
        f"{_tensor_cores(busy)}；这块 GPU（计算能力 {capability:g}）的 Tensor Core 支持 float16。",
    )


def tf32() -> Fix:
    return fix("允许 TF32", "只需一行；权重和激活仍是 float32。")


def try_mixed_precision(*, bfloat16: bool, loop: str) -> Fix:
    return fix(
        "如果用 float32 训练，改用混合精度",
        "这块 GPU 的计数器看不出 Tensor Core 是否在工作；16 位的矩阵乘法在它们上面运行，快好几倍。",
    )


def _mixed_precision(*, trains: bool) -> str:
    return "使用混合精度训练" if trains else "使用混合精度计算"


def _tensor_cores(busy: Evidence | None) -> str:
    return f"Tensor Core 有 {amount(busy)}在工作" if busy else "Tensor Core 几乎没有工作"


def low_clocks() -> str:
    return "GPU 降频"


def low_clocks_refuted() -> str:
    return "在另一块空闲的同型号 GPU 上测量一次大的矩阵乘法：如果那里也一样慢，原因就不是频率。"


def cool(*, slow: float | None, temperature: Evidence | None) -> Fix:
    return fix("给 GPU 降温", f"{_clock(slow)}它因过热而受限（{amount(temperature) if temperature else '温度未知'}）。")


def power_limit(*, slow: float | None, power: Evidence | None, limit: Evidence | None) -> Fix:
    draws = amount(power) if power else "允许的功率"
    most = amount(limit) if limit else "未知"
    return fix("如果功率上限被调低过，就调高它", f"{_clock(slow)}它的功率是 {draws}，上限是 {most}。")


def power_supply(*, slow: float | None) -> Fix:
    return fix("检查 GPU 的供电", f"{_clock(slow)}硬件自身让它变慢（power brake 或过热）。")


def unlock_clocks() -> Fix:
    return fix("检查频率是否被锁定", "可能有人为另一个作业锁定了频率，或设置了应用频率。")


def _clock(slow: float | None) -> str:
    return f"频率比最高频率低 {percent(slow)}。" if slow is not None else ""


def sharing() -> str:
    return "与其他进程共用 GPU"


def sharing_refuted() -> str:
    return "让其他进程停一分钟：如果速度不变，原因就不是它们。"


def own_gpu(*, others: Evidence | None, use: float | None) -> Fix:
    part = f"它们占用 GPU {percent(use)} 的时间。" if use is not None else ""
    return fix("独占一块 GPU", f"{amount(others) if others else '其他进程'}与这个作业共用 GPU，轮流使用。{part}")


def start_mps() -> Fix:
    return fix("如果必须共用，就让它们同时运行", "没有 MPS 时，进程只能轮流使用 GPU。")
