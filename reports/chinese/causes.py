"""What causes are called."""

from perfdoctor import causes

_TITLES = {
    causes.INPUT_PREPROCESSING: "在 CPU 上准备输入数据",
    causes.WORKER_STARTUP: "重新启动 worker 进程",
    causes.DATA_TRANSFER: "批次从 worker 进程交接到训练进程（IPC）",
    causes.LOCK_CONTENTION: "排队等待作业自己的锁",
    causes.PYTHON_OVERHEAD: "解释器和算子分发",
    causes.KERNEL_LAUNCH: "启动零碎的 GPU kernel",
    causes.SYNCHRONIZATION: "等待 GPU 的队列排空",
    causes.GIL_CONTENTION: "等待 GIL",
    causes.GARBAGE_COLLECTION: "垃圾回收（GC）",
    causes.CONTENTION: "就绪线程多于 CPU 核",
    causes.THROTTLED: "cgroup 的 CPU 配额",
    causes.STARTUP: "作业启动时的一次性工作",
    causes.EVALUATION: "不求梯度的前向传播（评估）",
    causes.MODEL_COMPUTE: "模型在 CPU 上的计算",
    causes.STORAGE_READ: "从存储读取数据",
    causes.NETWORK_READ: "从网络读取数据",
    causes.CHECKPOINT_WRITE: "保存检查点",
    causes.LOG_WRITE: "写日志",
    causes.SWAP: "内存换入换出",
    causes.GPU_COMPUTE: "模型在 GPU 上的计算",
    causes.MEMORY_BANDWIDTH: "GPU 的显存读写",
    causes.LOW_OCCUPANCY: "每个 GPU kernel 的工作量太小",
    causes.NO_TENSOR_CORES: "全精度计算，没有用上 Tensor Core",
    causes.HOST_TRANSFER: "主机与 GPU 之间的拷贝",
    causes.MEMORY_PRESSURE: "显存不足",
    causes.GPU_THROTTLED: "GPU 降频",
    causes.GPU_CONTENTION: "另一个进程占用 GPU",
    causes.BANDWIDTH: "在 rank 之间传输梯度",
    causes.LATENCY: "大量小的集合通信",
    causes.DATA_PARALLEL: "nn.DataParallel 的分发和汇集",
    causes.UNOBSERVED_RANK: "等待没有被观测的 rank",
    causes.UNATTRIBUTED: "未归因",
}


def title(*, cause: str) -> str:
    return _TITLES[cause]
