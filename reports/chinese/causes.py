"""What is said of each cause: one row for each."""

from perfdoctor import causes
from perfdoctor.reports.shared_words import Explanation

EXPLAINED = {
    causes.INPUT_PREPROCESSING: Explanation(
        title="在 CPU 上准备输入数据",
        goes="花在准备输入数据上",
        means=(
            "解码、增强、分词、整理批次：输入管线在计算，可能在训练进程里，"
            "也可能在 worker 进程里而训练进程在等待。作业自己的训练循环在调用模型那一行之前所做的事也算在内，"
            "按设定的时间睡眠（`input_asleep`，为遵守请求频率，或为再看一次）也算在内。"
        ),
        looks_like=(
            "存储慢（那时 worker 进程睡在读调用或缺页里；这里它们在运行）、交接问题（那时 worker 进程空闲）、"
            "争抢（那时它们就绪却得不到核）。"
        ),
        helps=(
            "刚好跟得上的 worker 进程数，即 `ceil(worker 秒数 / 训练进程自己的秒数)`，前提是有足够的核，"
            "在小容器里还要有足够的内存和 `/dev/shm` 空间；否则按输入的种类来，调用栈上的软件包会说明："
            "文本用 Rust 写的分词器和一次做好的 token，图片按几分之一的尺寸解码，数值用整块数组，"
            "用一次做好的张量代替 DataFrame 的行，Hugging Face 的 datasets 表按顺序读行；有 GPU 时在 GPU 上解码和增强。"
        ),
        refuted="只用一个留在内存里的批次，速度仍然不变。",
    ),
    causes.WORKER_STARTUP: Explanation(
        title="重新启动 worker 进程",
        goes="花在重新启动 worker 进程上",
        means=(
            "worker 进程被 fork 或 spawn 出来，在第一个批次之前导入模块、打开数据集，而且一再重复。"
            "fork 之后，训练进程每写到一页内存就要复制一页（`own_copying`）。"
        ),
        looks_like="每个 epoch 开头的慢预处理；但 worker 进程很年轻：`worker_starts` 和 `worker_life` 会显示出来。",
        helps="只建一次的 loader 加上 `persistent_workers=True`、更长的 epoch、fork server；只创建一次的进程池。",
        refuted="用 `num_workers=0` 时停顿仍在。",
    ),
    causes.DATA_TRANSFER: Explanation(
        title="批次从 worker 进程交接到训练进程（IPC）",
        goes="花在把批次从 worker 进程交接到训练进程上",
        means=(
            "批次交接（worker 进程 → 训练进程，IPC）：批次在两者之间等待，被 pickle、发送、重建、锁页，"
            "或者因为没轮到而被扣住。这不是主机到设备的拷贝，那是 `gpu.host_transfer`。"
        ),
        looks_like=(
            "worker 进程太少，因为训练进程在 loader 里等待；但 `worker_busy` 很低，或者训练进程自己忙于重建对象。"
        ),
        helps=(
            "每个批次用少数几个大张量、按名字共享的张量、让锁页线程少做事；多数批次快而少数慢时用 `in_order=False`。"
        ),
        refuted="换成同样大小的一个张量，等待一样久。",
    ),
    causes.LOCK_CONTENTION: Explanation(
        title="排队等待作业自己的锁",
        goes="花在排队等待作业自己的锁上",
        means="worker 进程、训练进程或线程排队等待作业自己的锁，例如共享的文件、数据库连接或模型的锁。",
        looks_like=(
            "worker 进程太少；但一个在工作，而其他的睡在 futex 里，"
            "或睡在反复尝试文件锁的库里（filelock），所以再多也没有用。"
        ),
        helps="每个 worker 进程有自己的资源，缩短持锁的时间。",
        refuted="只用一个 worker 进程时也按比例一样慢。",
    ),
    causes.PYTHON_OVERHEAD: Explanation(
        title="解释器和算子分发",
        goes="花在 Python 和算子分发上，而不是计算上",
        means=(
            "训练进程在调用操作而不是在计算：Python 里的逐元素循环、成千上万的零碎算子。编译模型也算在这里："
            "第一步之前的一次（`own_compiling`）说明不了训练本身，训练步之间的又一次（`own_recompiling`）则不同；"
            "如果几乎看不到别的东西，两者都可能是。在 GPU 作业的 trace 里它还有另外两种形式。"
            "一种是算子在主机上工作而每次超过 1 ms 不启动任何东西（`traced_in_operator`）：处理张量列表、"
            "主机内存里的张量或自己的 Python 代码；这时更大的批次没有帮助。"
            "另一种是主机在 PyTorch 之外（`traced_outside`）：trace 只能说明那是主机的时间、属于谁，"
            "却不能说明那里的代码是在计算、读取、睡眠还是等待；置信度至多 0.6，调用栈或 `attach` 能说明更多。"
        ),
        looks_like=(
            "模型的计算，因为两者都让一个核忙碌；但正在运行的机器码是分发、分配和解释器，而不是少数几个计算 kernel。"
        ),
        helps=(
            "以分发为主时：整张量操作、`torch.compile`、融合的优化器、更大的批次；"
            "以解释器为主时（`interpreter_code`）：更省的或更少的自有 Python 代码，以及一起前进的多个环境；"
            "以其他库为主时（`library_code`，如写图片、匹配目标），或以模型之外的张量计算为主时（`own_beside`，"
            "如指标、权重的副本）：做得少一些，或放到另一个进程；关掉调试开关、"
            "调试器和性能分析器。"
        ),
        refuted="批次加倍，时间也加倍。",
    ),
    causes.KERNEL_LAUNCH: Explanation(
        title="启动零碎的 GPU kernel",
        goes="里 GPU 在等待零碎的 kernel 启动",
        means="GPU 作业里解释器和算子的开销：主机启动零碎的 kernel 时，GPU 在它们之间空转。",
        looks_like="启动 kernel 的线程把核让给了别人（那时它就绪却得不到核：cpu.contention）。",
        helps="CUDA graph、编译、更大的批次。",
        refuted="批次加倍，时间也按比例变长。",
    ),
    causes.SYNCHRONIZATION: Explanation(
        title="等待 GPU 的队列排空",
        goes="花在等待 GPU 的队列排空上",
        means="主机从 GPU 读一个值，要等它的队列排空，而 GPU 在重新装满之前空闲。",
        looks_like="工作中的 GPU：主机等待时 GPU 确实在计算，损失的只是后面的空隙。",
        helps="把指标留在 GPU 上、很少读取、不等待地拷贝；不设置 `CUDA_LAUNCH_BLOCKING`。",
        refuted="`torch.cuda.set_sync_debug_mode('warn')` 没有任何警告。",
    ),
    causes.GIL_CONTENTION: Explanation(
        title="等待 GIL",
        goes="花在等待 GIL 上",
        means="训练进程的另一个 Python 线程占着 GIL。",
        looks_like="一个忙于计算的核；但主线程在每个阶段都睡在 futex 里，而同一进程的另一个线程占着锁。",
        helps="把那个线程的工作放到单独的进程里，用阻塞代替轮询。",
        refuted="停掉那个线程，什么也没有改变。",
    ),
    causes.GARBAGE_COLLECTION: Explanation(
        title="垃圾回收（GC）",
        goes="花在垃圾回收上",
        means="循环垃圾回收器（GC）遍历所有 Python 对象。",
        looks_like="同一行上的 Python 开销；解释器自己会说它正在回收。",
        helps="`gc.freeze()`、在选定的训练步上所有 rank 一起回收、更少的对象。",
        refuted="执行 `gc.disable()` 之后速度仍然不变。",
    ),
    causes.CONTENTION: Explanation(
        title="就绪线程多于 CPU 核",
        goes="花在等待空闲的核上：想要核的线程多于核",
        means="就绪线程多于核：主线程随时可以运行，却在等核。",
        looks_like=(
            "计算（两者都是状态 R；调度器的排队延迟不同），也像 CPU 配额（排队延迟相同，"
            "但那时 cgroup 被停住而有核空闲）。是谁的线程，由 `runnable_threads`（作业的）"
            "和 `neighbour_cores` 显示；邻居只计作业可以使用的核，最忙的会点名。"
            "谁与谁竞争，由线程的亲和掩码决定：只能在同一个核上运行的两个线程就在那里排队，不管旁边有多少空闲的核。"
            "perfdoctor 自己的用量是 `own_cores`。"
        ),
        helps=(
            "每个进程用更少的计算线程，或更少的 worker 进程；把邻居移走；更宽的 CPU 亲和掩码，"
            "或者不让 OpenMP 绑定（`OMP_PROC_BIND`）。"
        ),
        refuted="这样做之后排队延迟仍在。",
    ),
    causes.THROTTLED: Explanation(
        title="cgroup CPU 配额的限流",
        goes="里作业被 cgroup 的 CPU 配额停住",
        means="cgroup 的 CPU 配额用完了，作业停到下一个周期。",
        looks_like=(
            "争抢；但 `throttled_periods` 在增长而主机有空闲的核。`os.cpu_count()` 不知道配额，"
            "所以作业在配额下会启动过多线程。"
        ),
        helps="更高的配额；否则线程数不要超过配额的核数。",
        refuted="`nr_throttled` 不再增长。",
    ),
    causes.STARTUP: Explanation(
        title="作业启动时的一次性工作",
        goes="花在作业启动时的一次性工作上",
        means=(
            "作业启动时只做一次、而 GPU 在等待的事：编译、首次调用时加载 kernel 和库、试算法、首次分配。"
            "只能从 trace 得知。它以秒计自己的时间（`traced_startup`），从不声称能带来加速，"
            "因为后面的训练步都不再做。占 trace 的 20 % 以上时它就是结论：那么这个 trace 记录的是启动，"
            "对训练什么也没说。"
        ),
        looks_like=(
            "启动 kernel（两者主机都在启动调用里；这里一次要 1 ms 到数秒），也像显存已满（那时一再分配，"
            "而几乎不做初始化）。在后面的训练步里又出现的不是启动：重新编译属于 `cpu.python_overhead`。"
        ),
        helps="跟踪后面的训练步；作业经常启动时，用能留存下来的缓存。",
        refuted="后面的训练步也一样。",
    ),
    causes.EVALUATION: Explanation(
        title="不求梯度的前向传播（评估）",
        goes="花在评估上，没有训练任何东西",
        means=(
            "在不求梯度的遍历里调用模型：评估的计算和 Python，训练此时停着。输入、"
            "保存以及其他拖住这种遍历的事各归各的原因。"
        ),
        looks_like=(
            "模型的计算，因为它本来就是；但后面没有反向传播。用 `diagnose()` 时，"
            "前向传播的标记会说明是否保留梯度。从外部看有四个依据：栈上有某个库的评估循环（Lightning、"
            "transformers、fastai……）；在同时做训练和评估的最内层函数里，模型在最后一行训练代码之下被调用；"
            "某个循环遍历 DataLoader 的批次并调用模型，而同一函数的另一行通向完整的训练步；"
            "或者两次训练之间的前向传播采样点是平时的十倍。"
            "如果这些依据都没有，短于半秒、又在训练代码之上的评估与训练分不开。"
            "在 GPU 上，只有主机自己的 Python 算在这里；用 `diagnose()` 时它们不进账。"
        ),
        helps="评估得少一些、只用部分数据、用更大的批次、用推理模式。",
        refuted="去掉它，速度仍然不变；如果训练需要这些遍历的结果（例如 rollout），少做也不是办法。",
    ),
    causes.MODEL_COMPUTE: Explanation(
        title="模型在 CPU 上的计算",
        means=(
            "模型自己在 CPU 上的计算：对在 CPU 上训练的作业来说不是瓶颈。其中矩阵乘法、卷积和 FFT 大多占 0.6 以上"
            "（`multiplying`）。若不到一半，多是逐个运算地遍历整个张量：写开了一个运算就能算完的东西，或算了却不用。"
            "遍历最多的函数会被指出。"
        ),
    ),
    causes.STORAGE_READ: Explanation(
        title="从存储读取数据",
        goes="花在从存储读取数据上",
        means="从本地或挂载的存储读取，包括映射文件的缺页。",
        looks_like=(
            "短测试里页缓存掩盖了读取时像预处理（`page_cache` 会显示），映射文件时像计算（没有读调用；"
            "`major_faults` 和 `read_from_storage` 能说明），在 iowait 里则什么也看不出，它不计网络文件系统，"
            "在繁忙的机器上也不计。"
        ),
        helps=(
            "把数据放在内存或本地存储里，读更少的字节。另有三种情况需要不同的办法：小的读取（把样本打包成分片）、"
            "映射文件（更大的块）、设备是否已饱和（`device_busy`：设备有余力时，更多的读取者才有用）。"
        ),
        refuted="第二遍读同样的文件也一样慢。",
    ),
    causes.NETWORK_READ: Explanation(
        title="从网络读取数据",
        goes="花在从网络读取数据上",
        means="从套接字读取：对象存储、HTTP、数据库。",
        looks_like="空闲的 worker 进程，因为它们在睡眠；但睡在网络套接字上，而不是睡在队列的管道上。",
        helps="同时发多个请求、本地副本、在保持的连接上读更大的对象。",
        refuted="本地文件也一样慢。",
    ),
    causes.CHECKPOINT_WRITE: Explanation(
        title="保存检查点",
        goes="花在保存检查点上",
        means="写状态时训练进程停着。",
        looks_like="慢读取（两者都是不可中断的睡眠；调用和路径能区分），也像记录日志（字节数能区分）。",
        helps="在训练背后保存（模型和优化器）、保存得少一些、用更快的存储。",
        refuted="不保存也没有改变。",
    ),
    causes.LOG_WRITE: Explanation(
        title="记录日志",
        goes="花在记录日志上",
        means="写日志行和指标，常常每一行都刷到设备上；也包括生成并写出图片、图表、声音和结果表格。",
        helps="更少的行、不用 fsync、用另一个线程；写进管道或连接时，要有跟得上的读取者。",
        refuted="写到 `/dev/null` 也一样慢。",
    ),
    causes.SWAP: Explanation(
        title="内存换入换出",
        goes="花在内存换入换出上",
        means="内存被换入换出。",
        looks_like="映射的文件，因为两者都是主缺页；但 `swap_in` 在动。",
        helps="更少的 worker 进程和预取批次、把数据放在 Python 对象之外、更多内存。",
        refuted="`vmstat` 没有显示换入。",
    ),
    causes.GPU_COMPUTE: Explanation(
        title="模型在 GPU 上的计算",
        means=(
            "模型自己在 GPU 上的计算：不是瓶颈。其中一部分仍可能不必要："
            "因旁边有集合通信而变慢的 kernel（`traced_beside`、`traced_lengthened`；有帮助的是："
            "NCCL 用更少的通道、换个重叠的位置），以及激活重计算重做的前向工作（`traced_recomputed`；有帮助的是："
            "在显存允许时少做或有选择地做）。如果计数器和 trace 都看不出带 Tensor Core 的 GPU 用什么精度计算，"
            "会提议试用混合精度。"
        ),
    ),
    causes.MEMORY_BANDWIDTH: Explanation(
        title="GPU 的显存读写",
        goes="花在 GPU 的显存读写上",
        means="显存是上限：忙碌时间里 `gpu_dram` 在 0.70 以上而 `gpu_tensor` 在 0.50 以下（XProf 的标准）。",
        looks_like="计算，因为流多处理器都在忙。",
        helps="融合的逐元素操作、16 位、融合的注意力。",
    ),
    causes.LOW_OCCUPANCY: Explanation(
        title="每个 GPU kernel 的工作量太小",
        goes="花在工作量太小的 GPU kernel 上",
        means="kernel 只用到不到一半的流多处理器。",
        looks_like="`nvidia-smi` 里满载的 GPU。",
        helps="更大的批次、编译。",
        refuted="批次加倍，每秒样本数没有增加。",
    ),
    causes.NO_TENSOR_CORES: Explanation(
        title="全精度计算，没有用上 Tensor Core",
        goes="花在没有用上 Tensor Core 的全精度计算上",
        means="全精度在做工作而 Tensor Core 闲着；依据是硬件计数器，而不是会过时的 kernel 名字。",
        helps="`torch.autocast`、TF32。",
        refuted="用 autocast 的训练步一样久。",
    ),
    causes.HOST_TRANSFER: Explanation(
        title="主机与 GPU 之间的拷贝",
        goes="花在主机与 GPU 之间的拷贝上",
        means="主机与 GPU 之间没有被任何工作掩盖的拷贝。",
        looks_like="offload 或保存，它们在别的阶段搬运字节。",
        helps="锁页内存加 `non_blocking=True`，更少的字节。",
        refuted="批次已经在 GPU 上时也一样久。",
    ),
    causes.MEMORY_PRESSURE: Explanation(
        title="显存不足",
        goes="花在腾出显存上",
        means="分配器把显存还回去又再要回来。",
        looks_like="同步，因为 `cudaFree` 要等 GPU；而正常工作的缓存看起来也像显存已满。",
        helps="`expandable_segments`、不调用 `empty_cache()`、少用显存。",
        refuted="`num_alloc_retries` 不再增长。",
    ),
    causes.GPU_THROTTLED: Explanation(
        title="GPU 降频",
        goes="因 GPU 降频而损失",
        means=("功率、温度或硬件把频率压低了 15 % 以上。只有功率上限而频率没有降低，在繁忙的数据中心 GPU 上是正常的。"),
        helps="散热、功率上限、解除锁定的频率。",
        refuted="另一块空闲的同型号 GPU 也一样慢。",
    ),
    causes.GPU_CONTENTION: Explanation(
        title="另一个进程占用 GPU",
        goes="因另一个进程占用 GPU 而损失",
        means="另一个进程在十分之一以上的时间里使用这块 GPU。",
        helps="独占的 GPU、MPS。",
        refuted="没有它时速度仍然不变。",
    ),
    causes.BANDWIDTH: Explanation(
        title="在 rank 之间传输数据",
        goes="花在 rank 之间传输数据上",
        means="所有 rank 都在集合通信里，正在搬运字节。",
        looks_like=(
            "掉队 rank 的瓶颈，因为其他 rank 也等在同一个集合通信里；但这里一个也不缺。"
            "或者是 GPU 自己的 kernel 拖住了集合通信：在 trace 里，"
            "同样的集合通信排在 kernel 之后与单独执行的对比（`traced_behind`、`traced_held_up`）能说明；"
            "如果这占大部分，有帮助的是高优先级的 stream 或另一种重叠，更快的网络则没有用。"
        ),
        helps=(
            "看各 rank 怎样分担模型。每个 rank 有整个模型时：用 `no_sync()` 累积梯度（前向传播也要包在内）、"
            "16 位梯度（NCCL 用 bfloat16，gloo 不接受它，用 float16）、重叠；共享模型时（`fully_shard`、"
            "FullyShardedDataParallel、DeepSpeed）：在两次传播之间保留参数、16 位、预取、在主机内共享、"
            "用它们自己的调用来累积；共同持有每一层时（张量并行，由前向传播中的交换看出）：让更少的 rank 共同持有一层；"
            "专家、嵌入表或序列分布在各 rank 上时（由 all-to-all 看出）：分给更少的 rank，并在发送时计算别的；"
            "对所有情况：更快的传输，以及所有 rank 共用一台主机的核时改用一个进程。"
        ),
        refuted="不做交换的训练步一样久。",
    ),
    causes.LATENCY: Explanation(
        title="大量小的集合通信",
        goes="花在大量小的集合通信上",
        means="大量小的集合通信：代价是唤醒，而不是字节。`bytes_per_packet` 很小，线程大多在睡眠。",
        helps=(
            "一个展平的张量、DistributedDataParallel 的桶、更大的 `fully_shard` 单元、不用 SyncBatchNorm、"
            "更少的指标、不用 barrier。"
        ),
        refuted="字节数变成十倍，时间也变成十倍。",
    ),
    causes.DATA_PARALLEL: Explanation(
        title="nn.DataParallel 的分发和汇集",
        goes="花在 nn.DataParallel 的分发和汇集上",
        means="`nn.DataParallel` 在一个 Python 进程里分发、复制和汇集。",
        helps="DistributedDataParallel。",
        refuted="单独一块 GPU 按比例更慢。",
    ),
    causes.UNOBSERVED_RANK: Explanation(
        title="等待没有被观测的 rank",
        goes="花在等待没有被观测的 rank 上",
        means="被观测的 rank 在等一个没有被观测的 rank：它可能晚了，或者交换很慢。",
        helps="观测所有 rank。",
    ),
    causes.UNATTRIBUTED: Explanation(
        title="未归因",
        means="无法归因的时间始终可见。它不会被丢掉，也不会分摊给其他原因。",
    ),
}


def title(*, cause: str) -> str:
    return EXPLAINED[cause].title


def goes(*, cause: str) -> str:
    return EXPLAINED[cause].goes
