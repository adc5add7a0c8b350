"""What settings of a job and parts of its hardware are called, and their values; ``perfdoctor.metrics.settings``."""

NAMES = {
    "trainers": "训练进程数",
    "workers": "每个训练进程的加载 worker 数",
    "cores": "作业可用的核数",
    "physical_cores": "其中的物理核数",
    "host_cores": "主机的核数",
    "affinity_cores": "训练进程亲和性掩码中的核数",
    "quota_cores": "CPU 配额（核）",
    "cpu_model": "CPU",
    "memory_bytes": "主机内存",
    "memory_limit_bytes": "内存上限",
    "kernel": "Linux 内核",
    "gpus": "GPU 数",
    "gpu_name": "GPU",
    "compute_capability": "GPU 的计算能力",
    "on_gpu": "在 GPU 上训练",
    "trainer_threads": "训练进程的线程数",
    "worker_threads": "加载 worker 的线程数",
    "ranks_started": "rank 的启动者",
    "start_method": "worker 的启动方式",
    "pin_thread": "有线程锁页 batch",
    "exchange_policy": "指定各 rank 交换方式之处",
    "accumulates_at": "用多次传播凑成一次更新之处",
    "exchanges_again": "为一次更新反复交换梯度之处",
    "updates_when": "更新权重的条件",
    "saves_when": "保存的条件",
    "logs_when": "写日志的条件",
    "evaluates_when": "评估的条件",
    "evaluates_at": "评估的位置",
    "pads_all": "将所有文本填充到同一长度",
    "update": "优化器",
    "made_of_state": "用循环自己改变的数据制作批次之处",
    "pool_at": "创建进程池之处",
    "per_pass_at": "为整个 epoch 做准备之处",
    "unused_pass": "无人使用的梯度",
    "untrained": "带梯度求值的模块",
    "trains_part": "只训练模型的一部分",
    "compiled": "由 torch.compile 编译",
    "graphs": "以 CUDA graph 启动工作",
    "trains": "训练模型",
    "pinned_at": "自己限定核的位置",
    "threads_set": "在代码中设置计算线程数",
    "loader": "使用 DataLoader",
    "dataset": "样本的来源",
    "streamed": "流式读取数据集",
    "environments": "环境的推进方式",
    "helpers": "向其他进程请求什么",
    "parallel": "各 rank 分担模型的方式",
    "activations": "各 rank 交换激活的方式",
    "pipeline": "把结果传给其他 rank",
    "tensor_parallel": "张量并行",
    "embeddings": "使用嵌入表",
    "object_collectives": "交换序列化的对象",
    "remote_calls": "让其他进程执行函数（RPC）",
    "sync_batch_norm": "同步批归一化",
    "backend": "集合通信的后端",
    "optimizer": "优化器的运行方式",
    "loop": "训练循环来自",
    "evaluation_loop": "评估循环来自",
    "logger": "用库写日志",
    "convolutions": "计算卷积",
    "recurrent": "使用循环层",
    "watched_by": "同时观测它的工具",
    "traced_by": "每一行或每次调用时执行",
    "filled_at": "把内存填成同一个数的位置",
    "indexed_at": "逐个取出张量各部分的位置",
    "stopped_by": "正在跟踪它的程序",
    "uncompiled_at": "torch.compile 没有编译的部分",
}
# Before the name of a mount point, of a device, of an environment variable.
PREFIXES = {
    "mount.": "{} 的文件系统",
    "disk.": "磁盘 {}",
    "disk_kind.": "磁盘 {} 的类型",
    "env.": "{}",
}
VALUES = {
    "for the model": "由模型输出决定的内容",
    "for input": "输入",
    "tensors": "内存中的张量",
    "arrow": "Hugging Face datasets",
    "arrow rows by number": "Hugging Face datasets，按行号读取",
    "rows of a table": "表的行",
    "in a thread": "在另一个线程中",
    "sparse gradients": "用稀疏梯度",
    "single": "逐个张量",
    "multi": "多个张量一起（foreach）",
    "fused": "融合（fused）",
    "one by one": "逐个",
    "together": "一起",
    "transformers": "Hugging Face Trainer",
    "lightning": "Lightning",
    "rotating": "机械盘",
    "solid state": "固态盘",
}
NETWORK = "{}，经过网络"


def name(*, setting: str) -> str:
    prefix = next((prefix for prefix in PREFIXES if setting.startswith(prefix)), "")
    if prefix:
        return PREFIXES[prefix].format(setting.removeprefix(prefix))
    return NAMES.get(setting, setting)


def value(*, setting: str, text: str) -> str:
    if setting.startswith("mount.") and text.endswith(" network"):
        return NETWORK.format(text.removesuffix(" network"))
    return text if setting.startswith(("mount.", "env.", "disk.")) else VALUES.get(text, text)
