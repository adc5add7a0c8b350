"""The trainer's Python: dispatch overhead, the GIL, and the cyclic garbage collector."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix, percent


def compiling_again() -> str:
    return "反复编译模型"


def compiling_again_refuted() -> str:
    return "用 TORCH_LOGS=recompiles 运行：如果最初几步之后不再报告重新编译，占用时间的就不是编译。"


def compile_once() -> Fix:
    return fix(
        "避免 torch.compile 重新编译",
        "编译后的模型只适用于编译时的形状和取值；遇到其他形状和取值就要重新编译。",
    )


def compiling() -> str:
    return "编译模型（torch.compile）"


def compiling_refuted() -> str:
    return "几分钟后再看一次：如果那时不再编译，那就是一次性的，不是瓶颈。"


def whole_graph(*, line: str, share: float) -> Fix:
    return fix(
        "让 torch.compile 编译整个模型",
        f"交给它的部分仍有 {percent(share)} 的时间在逐个算子地运行，大多在 {line}。"
        "函数中如有它无法处理的内容，它就在那里断开计算图；如果在循环里，就整个放弃。"
        "运行时设置 TORCH_LOGS=graph_breaks，可以看到是哪几行以及原因；设置 fullgraph=True 后，它会在那里报错。",
    )


def wait_for_compiling() -> Fix:
    return fix(
        "等训练步正常进行后再看",
        "两次编译之间几乎没有看到训练步。如果这是第一次编译，那么它只做一次，不能说明训练的快慢；"
        "如果那时仍在编译，就是每一步都在编译。",
    )


def keep_compiled() -> Fix:
    return fix(
        "减少编译，并保留编译结果",
        "如果编译的是重复的模块而不是整个模型，同样的模块就只编译一次；编译结果会存放在作业结束后仍然保留的缓存中。",
    )


def detecting_anomalies() -> str:
    return "autograd 的异常检测（anomaly detection）"


def detecting_anomalies_refuted() -> str:
    return "在若干步里把它关掉：如果速度不变，拖慢作业的就不是它。"


def outside() -> str:
    return "作业中不属于 PyTorch 的代码"


def not_shown() -> str:
    return "trace 里看不到它在做什么"


def outside_refuted() -> str:
    return (
        "用 with_stack=True 重新记录同样的步：如果那时主线程处于 DataLoader、保存检查点或 PyTorch 的栈帧中，"
        "就不是作业自己的代码。"
    )


def record_stacks(*, several_ranks: bool) -> Fix:
    where = "在那个 rank 上，" if several_ranks else ""
    return fix(
        "查出主线程在那里做什么",
        f"{where}GPU 在等待，而主机没有调用任何算子：它在 Python 或其他库中计算、读文件、睡眠，或在等待锁。",
    )


def shorten_outside() -> Fix:
    return fix(
        "把它移到训练步之外并行执行",
        "不依赖本步结果的工作，可以在 GPU 计算时由 worker 进程或另一个线程完成；这样下一步的启动就能及时到来。",
    )


def in_operator() -> str:
    return "算子在主机上的工作"


def launch_nothing() -> str:
    return "其间不启动任何 kernel"


def in_operator_refuted() -> str:
    return "在主机上单独测量这个算子（torch.utils.benchmark）：如果只需几微秒，拖慢它的就是别的原因。"


def cheaper_operator(*, operator: str | None) -> Fix:
    return fix(
        f"降低 {operator} 在主机上的开销" if operator else "降低这个算子在主机上的开销",
        "一次有超过一毫秒的时间没有启动任何 kernel：算子在主机内存中的张量上计算、遍历很长的张量列表，"
        "或运行自己的 Python 代码。只有在这些工作量不随批次增长时，更大的批次才有帮助。",
        "把它的张量移到 GPU 上，对一个张量而不是一个列表调用它，或把它计算的内容一次准备好；"
        "自定义 kernel 的描述符和其他启动参数应在多次调用之间保留。",
    )


def others_work(*, packages: tuple[str, ...]) -> str:
    named = f"（{'、'.join(packages)}）" if packages else ""
    return f"模型之外其他库{named}的工作"


def programs() -> str:
    return "运行其他程序并等待它们"


def keep_program(*, line: str, share: float) -> Fix:
    return fix(
        f"让一个程序一直运行，通过管道向它提问{f'（{line}）' if line else ''}",
        f"{percent(share)} 的时间用于启动程序、让它工作并等待它。启动一个程序要几毫秒，"
        "需要导入模块的解释器每次要 20 毫秒以上。如果这一步不必等待答案，就在一轮中提问、下一轮再读取。",
    )


def beside() -> str:
    return "模型的计算之后另外计算的内容"


def others_work_refuted() -> str:
    return "几步之内不做这些工作：如果速度不变，拖慢作业的就不是它。"


def more_rarely(*, lines: tuple[str, ...], part: float, share: float | None) -> Fix:
    return fix(
        f"减少 {'和 '.join(lines)} 的工作或执行次数" if lines else "减少调用这些库的代码的工作或执行次数",
        f"计算之外运行的代码中，{percent(part)} 既不是 torch 也不是 Python 解释器。编译模型或增大批次都改变不了它。",
    )


def compute_rarely(*, line: str, share: float, hook: bool, averages: bool) -> Fix:
    if hook:
        return fix(
            f"让 {line} 做的事更少发生",
            f"{percent(share)} 的时间花在那里的运算上。它是 torch 在每次计算中调用的钩子，只读取数值："
            "很少需要每步都读。",
        )
    average = "权重的滑动平均也可以隔若干步更新一次，只要那一次遗忘的与其间各步之和相同。" if averages else ""
    return fix(
        f"让 {line} 做的事更少发生",
        f"{percent(share)} 的时间花在那里，位于模型的计算之后：指标等很少需要每步都算。{average}",
    )


def own_python() -> str:
    return "训练步中的 Python 代码"


def own_python_refuted() -> str:
    return "几步之内去掉这段代码，或让它返回常量：如果速度不变，拖慢作业的就不是它。"


def cheaper_python(*, lines: tuple[str, ...], part: float, share: float | None) -> Fix:
    return fix(
        f"降低 {'和 '.join(lines)} 的开销" if lines else "降低训练步中 Python 代码的开销",
        f"{_of_own_python(part, share)}：这是作业自己的代码，在一步步执行。编译模型或增大批次都改变不了它。",
        "把循环换成 NumPy 或张量运算，缓存反复计算的结果，降低执行频率，"
        "或与训练并行执行：ProcessPoolExecutor(1).submit(work, plain_data)。",
    )


def _of_own_python(part: float, share: float | None) -> str:
    if share is None:
        return f"计算之外运行的代码中，{percent(part)} 是 Python 解释器而不是 torch"
    return f"{percent(share)} 的时间在那里用于 Python 解释器和 torch 以外的库"


def calling() -> str:
    return "调用算子（解释器和分发）"


def calling_refuted() -> str:
    return "把批大小翻倍：如果每步耗时几乎也翻倍，时间就花在计算上，而不是调用上。"


# 代替循环的运算。
_ONE_OPERATION = (
    "（torch.stack、torch.where、index_add_、torch.func.vmap）。"
    "遍历参数时：求平均用 torch.optim.swa_utils.AveragedModel 和 get_ema_multi_avg_fn，"
    "梯度用 torch.nn.utils.clip_grad_norm_。"
)


def larger_operations(*, line: str | None, share: float) -> Fix:
    return fix(
        f"{f'在 {line} ' if line else ''}使用更少、更大的运算",
        f"{percent(share)} 的时间花在调用算子而不是计算上：每次调用都要几微秒，无论计算量多小。",
        f"在遍历元素或样本的循环处，换成一次张量运算{_ONE_OPERATION}"
        "用 LSTMCell 或 GRUCell 逐段遍历序列时：用 torch.nn.LSTM 或 GRU 一次算完。"
        "如果这个位置没有循环，请看上面的下一个位置。",
    )


def without_loop(*, line: str, share: float, computes: float) -> Fix:
    stays = f"此外计算本身占 {percent(computes)}：张量大时，这部分仍会留下。" if computes > share else ""
    return fix(
        f"用一次运算代替 {line} 处的循环",
        f"{_in_the_loop(share)}：每次调用都要几微秒，无论计算量多小。{stays}",
        f"遍历元素或样本时：换成对全部元素的一次张量运算{_ONE_OPERATION}",
    )


def whole_sequence(*, line: str, cell: str, layer: str, share: float) -> Fix:
    return fix(
        f"用 torch.nn.{layer} 一次处理整个序列，代替 {line} 处循环里的 {cell}",
        f"{_in_the_loop(share)}。处理整个序列的层只调用很少的算子，结果相同。"
        "循环里其余不需要后面状态的部分放到它之后，对所有片段一次完成。",
        f"self.rnn = torch.nn.{layer}(input_size, hidden_size, batch_first=True)  # 在创建 {cell} 的地方\n"
        "outputs, _ = self.rnn(pieces)  # pieces：（批、长度、input_size），代替循环",
    )


def _in_the_loop(share: float) -> str:
    return f"{percent(share)} 的时间花在调用循环里的算子及其反向算子上"


def several_at_once(*, line: str) -> Fix:
    return fix(
        f"让 {line} 处循环的每一轮同时处理更多",
        "每一轮都需要上一轮的结果，所以轮数不变。每轮的序列、环境或样本多一倍，同样的调用就多做一倍的事。",
        "batch_size = 2 * batch_size  # 或者同样多的环境，并检查损失是否照常下降",
    )


def done_alone(*, rank: int, lines: tuple[str, ...], share: float, waited: float) -> Fix:
    return fix(
        f"让 rank {rank} 在 {'、'.join(lines)} 少做一些，或者降低频率",
        f"只有 rank {rank} 把 {percent(share)} 的时间花在那里，其他 rank 有 {percent(waited)} 的时间在等它："
        "一个 rank 在自己那份训练之外做的事，占用的是所有 rank 的时间。",
        f"if rank == {rank} and step % 100 == 0: ...  # 日志和统计很少需要每步都做\n"
        "pool.submit(work, values)  # pool = ThreadPoolExecutor(1)；values：训练会改动的内容要先复制",
    )


def compile_model(*, sharded: bool, recurrent: bool, gpu: bool) -> Fix:
    return fix(
        "编译模型",
        "编译后的模型把许多小算子合并成少数大算子，算子之间没有 Python。"
        "最初几步因此需要一分钟或更久：只有运行较长时间的训练才划算。"
        + ("循环层（LSTM、GRU、RNN）保持原样：只有模型的其余部分受益。" if recurrent else "")
        + ("" if gpu else "在 CPU 上请先试一试：速度可能翻倍，也可能不变；只有几层的模型反而变慢。"),
    )


def compiling_is_off() -> str:
    return "它关闭了 torch.compile，而后者可以合并小算子。"


def larger_batch(*, loader: bool) -> Fix:
    return fix("使用更大的批次", "每步的调用次数不变，而每次调用计算得更多。")


def waiting_for_gil() -> str:
    return "等待 GIL"


def waiting_for_gil_refuted() -> str:
    return "让另一个线程停几步：如果速度不变，拖慢作业的就不是 GIL。"


def own_process(*, line: str | None, share: float) -> Fix:
    work = f" {line} 的工作" if line else "另一个线程的工作"
    holder = f"持有 GIL 的线程在 {line}。" if line else ""
    return fix(f"把{work}移到单独的进程中", f"主线程有 {percent(share)} 的时间在等待 GIL。{holder}")


def rest() -> Fix:
    return fix(
        "让另一个线程休息",
        "在 Python 中轮询或空转的线程每次占用 GIL 5 毫秒（sys.getswitchinterval()）。",
        "用 queue.get() 或 event.wait() 阻塞等待，不要轮询；必须轮询时，在两次轮询之间睡眠。",
    )


def fewer_tensors() -> Fix:
    return fix(
        "每个批次交接更少的张量",
        "锁页线程也是 Python 线程：它持有 GIL，逐个遍历批次中的每个张量。",
        "让 collate_fn 只返回一两个大张量。",
    )


def collecting() -> str:
    return "垃圾回收（GC）"


def collecting_refuted() -> str:
    return "在 gc.disable() 之后跑几百步：如果速度不变，原因就不是 GC。"


def collect_rarely(*, share: float, several_ranks: bool) -> Fix:
    return fix("在自己选定的时刻回收", f"GC 反复遍历所有 Python 对象：占 {percent(share)} 的时间。")


def fewer_objects() -> Fix:
    return fix(
        "保留更少的 Python 对象",
        "GC 的开销随对象数量增长：样本列表、每个样本一个字典、未释放的计算图。",
        "用 NumPy 数组或张量存放这些数据，并保存 float(loss) 而不是 loss。",
    )


def no_call(*, line: str | None, part: float) -> Fix:
    return fix(
        f"从训练步中去掉 {f'{line} 的 ' if line else ''}gc.collect()",
        f"{percent(part)} 的 GC 发生在一行只做回收的代码上，所以是那里主动调用的，gc.disable() 对它无效。"
        "不再需要的对象会立即释放；只有互相引用的对象才需要等待 GC。",
    )


def collected_by_hand(*, line: str) -> Fix:
    return fix(
        f"在 {line} 附近查找 gc.collect()",
        "大部分回收发生在那里。如果是手动调用的，就可以去掉。",
        "从训练步中去掉 gc.collect()。",
    )
