"""The model's arithmetic on the CPU: less of it, cheaper, and on all cores that it may have."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import blocks_run_again, fix, percent


def computing() -> str:
    return "模型自身在 CPU 上的计算"


def computing_refuted() -> str:
    return "把批大小减半：如果每步耗时和以前一样，时间就不是花在计算上。"


def little_multiplied(*, part: float) -> str:
    return f"其中只有 {percent(part)} 是矩阵乘法、卷积和 FFT；其余的是逐个运算地遍历整个张量，快慢取决于内存。"


def memory_bound(*, line: str, share: float) -> Fix:
    name = line.partition(" ")[2].rpartition(">.")[2]
    return fix(
        f"让 {name} 少遍历几次张量",
        f"{percent(share)} 的时间花在 {line} 遍历整个张量、很少做乘法的运算上：每个运算都从内存读出张量，"
        "再写出另一个张量。看看有没有算了却不用的数，能否用 torch.nn.functional 的一个运算代替几个。不改写也可以编译："
        "它们一次遍历就完成，反向传播也是如此。请先试一试：22 个这样的函数里有 17 个快到 1.06 至 1.8 倍，四个变慢"
        "（FFT、插值、大小会变的张量）。这需要 C++ 编译器，头几次调用最多要一分钟。",
    )


def unequal(*, share: float) -> str:
    return f"如果所有 rank 的工作量相等，一步会缩短 {percent(share)}"


def unequal_refuted() -> str:
    return (
        "让每个 rank 在若干步里都用同一个批次：如果其他 rank 仍然等那么久，"
        "不同的就不是工作量，而是主机或在那里运行的其他程序。"
    )


def single_precision(*, part: float, unfolds: bool) -> Fix:
    longer = "；卷积还要更久，因为 oneDNN 只有单精度的卷积" if unfolds else ""
    return fix(
        "用单精度计算",
        f"能看出精度的计算中，{percent(part)} 是双精度，耗时是单精度的两倍{longer}。"
        "NumPy 和 pandas 生成 64 位的数，由它们得到的张量也保持 64 位。",
    )


def all_instructions(*, name: str, value: str, instead: str) -> Fix:
    results = f"如果只要求在同一种 CPU 上每次运行结果相同，{name}={instead} 就够了。" if instead else ""
    return fix(
        f"取消设置 {name}",
        f"这个作业把它设成了 {value}，计算因此用不上新 CPU 更宽的向量和矩阵指令。{results}",
    )


def use_onednn(*, part: float) -> Fix:
    return fix(
        "让 oneDNN 来做卷积",
        f"{percent(part)} 的时间花在 PyTorch 自己的卷积和 NNPACK 的卷积上。单精度下 PyTorch 默认交给 oneDNN，快好几倍，"
        "除非把它关掉了，或者一个批次只有一个小样本。",
    )


def reduce_at_once(*, part: float) -> Fix:
    return fix(
        "元素很少的归约改用对整个张量的运算",
        f"{percent(part)} 的时间里，torch 为归约输出的每个数单独建立迭代器，随后的遍历通常还要两到三倍的时间："
        "不在最后一维上的 norm、以及 std 和 var 都是这样。每个数只来自少数元素时，用整张量运算会快很多倍。",
    )


def pad_ffts(*, part: float) -> Fix:
    return fix(
        "让 FFT 的长度为小质数的乘积",
        f"{percent(part)} 的时间花在长度含有大质因数的 FFT 上：这样的 FFT 由卷积构成，要做两倍以上长度的 FFT。"
        "卷积可以补齐到任何足够的长度；如果各个频率本身都要用到，就调整数据或窗口的大小。",
    )


def take_parts_at_once(*, line: str, share: float) -> Fix:
    return fix(
        f"一次取出张量的所有部分，不要{f'在 {line} ' if line else ''}逐个取出",
        f"{percent(share)} 的时间花在创建并累加全零的梯度上：用下标取出的每个部分，其梯度都与整个张量一样大，"
        "有多少个部分就有多少个这样的梯度。用 unbind（更长的部分用 split）一次取出所有部分，它们就共用一个梯度。",
    )


def drop_gradients(*, share: float) -> Fix:
    return fix(
        "在两步之间丢弃梯度，而不是清零",
        f"{percent(share)} 的时间里，所有梯度被填成零，再把新的梯度加上去。丢弃后，新的梯度直接取而代之。"
        "从 PyTorch 2.0 起，这是默认行为。",
    )


def fill_less(*, line: str, share: float) -> Fix:
    return fix(
        f"在 {line} 少填充内存" if line else "少填充内存",
        f"{percent(share)} 的时间里，那里的内存被填成同一个数：zeros、ones 和 full 会这样做；如果启用了 "
        "torch.use_deterministic_algorithms，empty 也会这样做，除非另行关闭。"
        "不变的张量只需创建一次；反正要被改写的内存不必填充。",
    )


def keep_memory(*, part: float, variables: tuple[tuple[str, str], ...]) -> Fix:
    return fix(
        "把释放的内存留给下一步",
        f"{percent(part)} 的时间里，内核在逐页交出此前归还过的内存：每一步都释放大张量再重新分配。"
        "这样设置后 glibc 会保留释放的内存，进程的内存停在最大值；jemalloc 和 tcmalloc 也会。",
    )


def equal_work(*, rank: int | None, share: float) -> Fix:
    who = "各 rank 轮流等待对方" if rank is None else f"其他 rank 在等 rank {rank}"
    return fix(
        "让所有 rank 的工作量相等",
        f"{who}：那里的批次更大或更长，或者主机更慢。工作量相等时，一步的时间是各 rank 的平均值，少 {percent(share)}。",
    )


def keep_activations(*, again: float, used: float | None, full: bool, loop: str) -> Fix:
    return fix(
        "减少激活重计算的模块，或不用激活重计算",
        blocks_run_again(again, used, "内存", full=full),
    )


def pad_less(*, place: str) -> Fix:
    return fix(
        "每个批次只填充到其中最长的文本，而不是把所有文本填充到同一长度",
        f"{place} 把每段文本都填充到同一长度，模型也要计算这些填充。占多少取决于文本：打印若干批次的 "
        "(batch['attention_mask'] == 0).float().mean()。对这些文本的运算可以省去这么多。"
        "有些模型需要固定长度（Whisper）；使用 torch.compile 时，请填充到少数几种长度（pad_to_multiple_of）。",
    )


def freeze_rest(*, place: str, backward: float | None) -> Fix:
    takes = "" if backward is None else f"（占 {percent(backward)} 的时间）"
    return fix(
        "不训练的部分就不计算梯度",
        f"{place} 处的优化器只拿到模型的一部分，其余部分的梯度却没有关闭：反向传播{takes}"
        "会计算这些梯度，但没有人使用。为这一部分本身所做的计算仍然保留。",
    )


def detach_unused(*, place: str, part: float | None) -> Fix:
    takes = "" if part is None else f"这次调用占 {percent(part)} 的时间，它的反向传播还要另算。"
    return fix(
        "不为这一步不更新的模块计算梯度",
        f"{place} 处调用的结果交给另一个模块，接下来更新的是后者的优化器。反向传播却继续穿过前者，"
        f"而它的梯度在自己的优化器使用之前就被清零。{takes}",
    )


def freeze_untrained(*, place: str, part: float | None, module: str) -> Fix:
    at = f"在 {place} 处" if place else ""
    takes = "" if part is None else f"这次调用占 {percent(part)} 的时间，它的反向传播还要另算。"
    return fix(
        "不为无人训练的模块计算梯度",
        f"{module} 只用于求值，没有优化器使用它的参数；但这些参数仍要求梯度，"
        f"所以反向传播也会穿过它{at}计算的内容。{takes}",
    )


def more_threads(*, more: int, threads: int, in_code: bool, idle: float, cores: float) -> Fix:
    limit = f"脚本把它限制为 {threads} 个线程" if in_code else f"OMP_NUM_THREADS 为 {threads}"
    return fix(
        f"让计算使用 {more} 个线程",
        f"{limit}，而 {cores:g} 个核中有 {idle:.2g} 个空闲。",
    )
