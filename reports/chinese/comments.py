"""The phrasebook for comments in the code of fixes, which is written once, in English."""

_DATA = {
    "of a JPEG: decodes at 1/2, 1/4 or 1/8, but not below size": "对 JPEG：按 1/2、1/4 或 1/8 解码，但不小于 size",
    "before rotating, blurring and the like: fewer pixels for them": "在旋转、模糊等操作之前：它们要处理的像素更少",
    "in Rust; so is tiktoken": "用 Rust 编写；tiktoken 也是",
    "a whole batch in one call, not text by text": "一次调用处理整个批次，而不是逐条文本",
    "in workers: bytes only": "在 worker 进程中：只取字节",
    "in the trainer: nvJPEG, a batch in one call": "在训练进程中：nvJPEG，一次调用处理一个批次",
    "NVIDIA DALI reads, decodes and augments there: {}": "NVIDIA DALI 在那里读取、解码和增强：{}",
    "as uint8": "以 uint8 传输",
    "better still: make the batch in pinned memory, {}": "更好的做法：直接在锁页内存中生成批次，{}",
    "crops: {}": "裁剪：{}",
    "once, before the loop": "只做一次，在循环之前",
    "in place of the call as it stands": "替换现有的调用",
    "in each step, in the place of next(iter(loader)) or of a loop that ends early": (
        "在每一步中，代替 next(iter(loader)) 或提前结束的循环"
    ),
    "filled by threading.Thread(target=draw, daemon=True), emptied in __iter__": (
        "由 threading.Thread(target=draw, daemon=True) 填充，在 __iter__ 中取出"
    ),
    "the loader's collate_fn: what it does now, and then what the loop does with the batch": (
        "DataLoader 的 collate_fn：先做它现在所做的，再做循环对批次所做的"
    ),
    "once per {} batches": "每 {} 个批次一次",
    "of tensors: torch.multinomial": "张量用 torch.multinomial",
    "a batch_sampler yields lists of batch_size": "batch_sampler 则产出长度为 batch_size 的列表",
    "None in __init__: each worker opens its own, at its first sample": (
        "在 __init__ 中设为 None：每个 worker 在取第一个样本时打开自己的"
    ),
    "before: {} is made once, of its whole size, and {} = 0": "在此之前：只创建一次完整大小的 {}，并设 {} = 0",
    "parts = [] at first; and torch.cat(parts) once, where all of it is needed": (
        "最初 parts = []；在需要全部数据的地方只调用一次 torch.cat(parts)"
    ),
    "or, where it is read each time and needs no gradients: made once, of the size that it will have": (
        "或者，如果每次都要读取且不需要梯度：只创建一次，大小为最终的大小"
    ),
    "there is {} so far": "到目前为止的数据是 {}",
    "in place of sequence[:, at]": "代替 sequence[:, at]",
    "in place of one_hot and the product": "代替 one_hot 和乘法",
    "in place of both": "代替两次反向传播",
    "in place of the calls one by one": "代替逐个调用",
    "in the place of x.norm(dim=dim)": "代替 x.norm(dim=dim)",
    "of x.var(dim, correction=0)": "代替 x.var(dim, correction=0)",
    "parts need no stack: torch.sqrt((a * a + b * b).clamp_min(1e-12)) for torch.stack([a, b]).norm(dim=0)": (
        "各部分不需要 stack：用 torch.sqrt((a * a + b * b).clamp_min(1e-12)) 代替 torch.stack([a, b]).norm(dim=0)"
    ),
    "in place of {} = {}": "代替 {} = {}",
    "so for all that is kept; products: addcmul_": "所有保留的张量都这样；乘积用 addcmul_",
    "the same for the parameter itself": "参数本身也一样",
    "in place of the loop": "代替这个循环",
    "once, before the first step": "只做一次，在第一步之前",
    "where the rate changes: optimizer.param_groups[0]['lr'] = rate": (
        "学习率变化时：optimizer.param_groups[0]['lr'] = rate"
    ),
    "at the top of the file": "写在文件开头",
    "in place of the call": "代替这次调用",
    "the first time": "第一次",
    "counted from 0": "从 0 数起",
    "once, before the loop, with as many as now": "在循环之前一次，进程数和现在一样",
    "in the loop, and no with-statement around it": "在循环里，外面不再套 with 语句",
    "behind the loop": "在循环之后",
    "as it is by default": "默认就是这样",
    "all of the batch, or as much as memory has room for": "整个批次，或内存容得下的部分",
    "if each sample's own gradient is needed: {}": "需要每个样本各自的梯度时：{}",
    "of arrays": "元素是数组时",
    "of tensors: {}; of numbers, keep all of them in one tensor and index that": (
        "元素是张量时：{}；元素是数字时，把它们全部放在一个张量里，再按下标取"
    ),
    "as now": "和现在一样",
    "of transformers: {}": "transformers 的写法：{}",
    "padded nowhere yet": "这里还不填充",
    "around the exchange; what is kept until then goes in one": "包住这次交换；积累到那时的数据一次发送",
    "as many on each rank": "每个 rank 上数量相同",
    "at the beginning of the hook": "写在钩子的开头",
    "no lists of dicts, no per-sample objects": "不要字典的列表，不要每个样本一个对象",
    "before: {}": "在此之前：{}",
    "once, before the loop over epochs": "只创建一次，在 epoch 循环之前",
    "outside the lock": "在锁之外",
    "this and the model's call before it, outside the lock": "它和之前的模型调用都在锁之外",
    "leaves the workers their cores": "把核留给 worker 进程",
    "of all the data, before ranks take their parts": "针对全部数据，在各 rank 取自己的部分之前",
    "its batches are like those of other ranks; shuffle them in the same order": (
        "它的批次与其他 rank 的相似；各 rank 用同样的顺序打乱"
    ),
    "in a container: docker run --shm-size=8g, or an emptyDir of medium Memory at /dev/shm": (
        "在容器中：docker run --shm-size=8g，或在 /dev/shm 挂载 medium 为 Memory 的 emptyDir"
    ),
    "datasets splits a stream by its shards: stream.num_shards has to be {} or more, by more files": (
        "datasets 按分片划分数据流：stream.num_shards 至少要有 {}，可用更多文件"
    ),
    "unless a step takes all of the data already": "除非每一步已经用上全部数据",
    "A checkpoint from before restores its own setting, so after load_state_dict:": (
        "以前的检查点会恢复它自己的设置，因此在 load_state_dict 之后："
    ),
    "Make the loader once, before the loop: workers that start anew for every few batches cost more than they save.": (
        "在循环之前只创建一次 DataLoader：每隔几个批次就重新启动的 worker 进程，代价大于收益。"
    ),
    "An IterableDataset must split its data by torch.utils.data.get_worker_info() first.": (
        "IterableDataset 必须先用 torch.utils.data.get_worker_info() 划分数据。"
    ),
    "what the loop does now to make a batch": "循环现在准备一个批次的代码",
    "then: for batch in loader": "然后：for batch in loader",
    "the order of batches then varies": "批次的顺序因此不再固定",
    "opened in the worker, at its first sample": "在 worker 进程中、读取第一个样本时打开",
    "needs no lock: pread has no shared position": "不需要锁：pread 没有共享的读写位置",
    "once: all that comes before what is drawn at random": "只做一次：随机变换之前的全部步骤",
    "in training": "训练时",
    "in training; a dataset that is iterated over keeps its shards": "训练时；逐个迭代的数据集保存的是分片",
    "in training; what is computed of one row is computed of all before": (
        "训练时；对每一行的计算事先对所有行一次做完"
    ),
    "once: the result is kept on disk": "只做一次：结果保存在磁盘上",
    "once, before training": "只做一次，在训练之前",
    "before the step": "在训练步之前",
    "around what calls it": "包住对它的调用",
    "around what calls it; an average then keeps decay ** 100 of itself": (
        "包住调用它的代码；滑动平均这时保留自身的 decay ** 100"
    ),
    "or an average in one call: {}": "或者一次调用更新滑动平均：{}",
    "a list of them": "一个列表",
    "in the helper, in place of the list": "在辅助进程中，代替列表",
    "in the helper: connection.send([answer(request) for request in connection.recv()])": (
        "在辅助进程中：connection.send([answer(request) for request in connection.recv()])"
    ),
    "with the names of the job's unit and of its device; Docker: docker run without {}": (
        "换成作业所在单元和设备的名字；Docker：docker run 时去掉 {}"
    ),
    "once, where they are made; targets too, unless they are class indices": (
        "只做一次，在创建它们的地方；不是类别的目标也一样"
    ),
    "the tokens of one text": "一段文本的 token",
    "before the optimizer is made": "在创建优化器之前",
    "as it is called there": "按那里的调用方式",
    "once, behind {}; what it is given may still get gradients": "只做一次，在 {} 之后；它的输入仍可以有梯度",
    "before training, or do not set it": "在训练之前，或者不设置它",
    "likewise": "同样",
    "with repeats; without: {}": "会有重复；不重复：{}",
    "in place of drawing from {} and of each call that puts a part of them together": (
        "代替从 {} 中抽取，以及拼合其各部分的每次调用"
    ),
    "once, for each part of a sample: {}": "对样本的每个部分只做一次：{}",
    "where a sample goes into {}: {}": "在样本放入 {} 的地方：{}",
    "where a later step needs its gradients, it calls it anew": "后面的步骤如果需要它的梯度，会重新调用它",
    "the part that it is given": "交给优化器的那一部分",
    "in the place of shuffle=True or another sampler": "代替 shuffle=True 或其他采样器",
    "its loader takes no shuffle=True and no sampler; Hugging Face's Trainer needs max_steps then": (
        "它的 DataLoader 不接受 shuffle=True 和采样器；Hugging Face 的 Trainer 这时需要 max_steps"
    ),
    "before each epoch, or its order is the last one's": "在每个 epoch 之前，否则顺序与上一个相同",
    "if it must stay a map: {}, once": "如果必须是 map 式数据集：{}，只做一次",
    "before the loader is made": "在创建 DataLoader 之前",
    "within an epoch: val_check_interval, so many times what it is": (
        "在 epoch 之内：把 val_check_interval 放大同样的倍数"
    ),
    "with eval_strategy='steps'; by epochs it evaluates after each": (
        "配合 eval_strategy='steps'；按 epoch 时每个之后都评估"
    ),
    "by samples, where it was by files": "按样本划分，而不是按文件",
    "or, from PyTorch 2.6: batches as they come, fewer from a slow worker": (
        "或从 PyTorch 2.6 起：批次先到先用，慢的 worker 进程少出一些"
    ),
    "no DataLoader": "不用 DataLoader",
    "DataLoader calls it with the whole batch": "DataLoader 用整个批次的索引调用它",
    "self._pool = ThreadPoolExecutor(32), made in the worker": (
        "self._pool = ThreadPoolExecutor(32)，在 worker 进程中创建"
    ),
    "then train from there": "然后从那里读取数据训练",
    "or in memory, of which {} are available": "或放在内存中，可用 {}",
    "or in memory": "或放在内存中",
    "once, before training: fills the page cache": "只做一次，在训练之前：填充页缓存",
    "once in each worker, in place of the map": "每个 worker 进程中一次，代替内存映射",
    "no read-ahead beyond the sample": "不预读样本之外的数据",
    "then rsync in the background": "然后在后台 rsync",
    "no flush(), no os.fsync() in the step": "训练步中不要 flush()，也不要 os.fsync()",
    "instead of a pipe: a file, which tail -F may follow": "用文件代替管道，可以用 tail -F 跟踪",
    "instead of a connection: logging.FileHandler(path), a file which the collector reads by itself": (
        "代替网络连接：logging.FileHandler(path)，由收集程序自行读取文件"
    ),
    "instead of the slow ones, which the listener serves": "代替慢的 handler，那些由 listener 处理",
    "stop() it at the end": "结束时调用 stop()",
    "needs a CPU backend too: {}": "还需要一个 CPU 后端：{}",
    "once; a group for these messages alone": "只做一次；专供这些消息使用的组",
    "the last one is written; at the end of training too": "上一次已写完；训练结束时也要",
    "in place of log(record), of print(record) too": "代替 log(record)，print(record) 也一样",
    "in place of torch.save(state, path)": "代替 torch.save(state, path)",
    "a function that also syncs or renames the file: submit that one, with in_memory(state)": (
        "如果有函数还会同步或重命名文件：提交那个函数，并传入 in_memory(state)"
    ),
    "by epochs: {}": "按 epoch 时：{}",
    "with save_strategy='steps'; by epochs it saves after each": (
        "配合 save_strategy='steps'；按 epoch 时每个之后都保存"
    ),
    "what a callback of the job's own writes: {}": "作业自己的回调所写的：{}",
}

_PYTHON = {
    "one cycle: without repeat=1 there is always a next one; profiler.step() belongs at the end of each step": (
        "一个周期：没有 repeat=1 就总会有下一个周期；profiler.step() 应放在每个训练步的末尾"
    ),
    "once": "只做一次",
    "once, after model and data are set up": "只做一次，在模型和数据准备好之后",
    "on all ranks in the same step, or every rank waits for each pause of any": (
        "所有 rank 在同一步，否则任何一个停顿都会让每个 rank 等待"
    ),
    "rarely": "偶尔",
    "Python loops in forward are unrolled: compile what a long one repeats instead": (
        "forward 中的 Python 循环会被展开：改为编译长循环所重复的部分"
    ),
    "of a model of equal blocks, in a fraction of the time: {}": "如果模型由相同的模块组成，这样编译快得多：{}",
    "before fully_shard or FullyShardedDataParallel": "在 fully_shard 或 FullyShardedDataParallel 之前",
    "or pad batches to a few sizes": "或把批次填充到少数几种大小",
    "TORCH_LOGS=recompiles python train.py reports what differed each time": (
        "TORCH_LOGS=recompiles python train.py 会说明每次有什么不同"
    ),
    "Adam takes it too": "Adam 也可以",
    "step() in place of optimizer.step()": "用 step() 代替 optimizer.step()",
    "learning rates as tensors, or each new one compiles it again: {}": "学习率用张量，否则每次改变都会重新编译：{}",
    "a folder that stays": "一个会保留的文件夹",
    "once: what is made of data that stays the same": "只做一次：由不变的数据得到的内容",
    "images, plots and metrics are rarely needed at each step": "图像、曲线和指标很少需要每一步都有",
    "pool = ProcessPoolExecutor(1): what the step need not wait for": (
        "pool = ProcessPoolExecutor(1)：训练步不必等待的工作"
    ),
    "gc.collect()  # or: if step % {} == 0: gc.collect(), after gc.freeze() once model and data are set up": (
        "gc.collect()  # 或：if step % {} == 0: gc.collect()，并在模型和数据准备好之后执行一次 gc.freeze()"
    ),
    "which imports the script: what trains must stand below if __name__ == '__main__'": (
        "它会导入脚本：训练代码必须放在 if __name__ == '__main__' 之下"
    ),
    "no CUDA tensors": "不要传 CUDA 张量",
    "or, in the job: {}": "或在作业中：{}",
    "and batch.to(device, non_blocking=True)": "并使用 batch.to(device, non_blocking=True)",
    "and ask for done.result() a step later": "下一步再取 done.result()",
    "one row for each environment": "每个环境一行",
    "without it; with perfdoctor attach PID nothing has to run in the job": (
        "不带它；perfdoctor attach PID 不需要在作业中运行任何东西"
    ),
    "when the first steps are done": "在最初几步完成之后",
    "before the first step": "在第一步之前",
    "after the first steps": "在最初几步之后",
    "or: {}": "或：{}",
    "or: top -H, sorted by CPU": "或：top -H，按 CPU 排序",
    "where the script sets more; with OpenCV: {}": "在脚本设置更多线程的地方；用 OpenCV 时：{}",
    "in code: {}": "在代码中：{}",
    "they run when the job does not": "它们只在作业不运行时运行",
    "or give the job cores of its own": "或给作业专用的核",
    "and num_workers of at most {}": "并且 num_workers 不超过 {}",
    "or the launcher's setting: {}": "或启动器的设置：{}",
    "around {}": "包住 {}",
    "around the evaluation": "包住评估",
}

_GPU = {
    "outside of autocast": "在 autocast 之外",
    "not where sizes change: it looks anew for each": "大小会变时不要用：每种大小都要重新查找",
    "on its host and on another": "在它的主机和另一台主机上",
    "on the slow rank's host and on another": "在慢的 rank 的主机和另一台主机上",
    "every second block, then fewer": "先每隔一个模块，再减少",
    "then fans, filters, placement in the rack": "然后检查风扇、滤网和机架中的位置",
    "the first steps then take a minute or more": "最初几步因此需要一分钟或更久",
    "see who is there, then: {}": "看看谁在用，然后：{}",
    "as root": "以 root 身份",
    "as root: unlocks clocks (-lgc)": "以 root 身份：取消锁定的频率（-lgc）",
    "resets application clocks (-ac)": "取消应用频率（-ac）",
    "or, from PyTorch {} on, {}: one of the two, PyTorch refuses both": (
        "或从 PyTorch {} 起，{}：二者选一，PyTorch 不接受同时设置"
    ),
    "read it after the event": "在 event 完成之后读取",
    "for batches of one size; the first steps then take a minute or more": (
        "适用于大小固定的批次；最初几步因此需要一分钟或更久"
    ),
    "a batch of another size is captured anew: {}": "大小不同的批次要重新捕获：{}",
    "views of one tensor: one call; some fit into the graph": (
        "都是同一个张量的视图：只需一次调用；有些可以在 graph 中生成"
    ),
    "prepare the next graph's inputs while this one runs; read its results after the next launch": (
        "在这个 graph 运行时准备下一个的输入；启动下一个之后再读取它的结果"
    ),
    "older torch: {}": "较旧的 torch：{}",
    "delete the call": "删除这个调用",
    "loads before the first step, not in it": "在第一步之前加载，而不是在其中",
    "stays on the GPU": "留在 GPU 上",
    "one wait in a hundred steps": "一百步只等待一次",
    "values[mask] waits, as their number must be known": "values[mask] 要等待，因为必须知道元素个数",
    "'NUMA Affinity' of each GPU": "每块 GPU 的 'NUMA Affinity'",
    "one per rank; torchrun: {}": "每个 rank 一个；torchrun：{}",
}

_MACHINE = {
    "raise --memory, the pod's limit or --mem; else fewer workers, a smaller prefetch_factor": (
        "调高 --memory、pod 的限额或 --mem；否则减少 worker 进程，调小 prefetch_factor"
    ),
    "an instance with dedicated cores, or of a type without CPU credits": "使用专用核的实例，或没有 CPU 积分的类型",
    "which port; on RoCE: {}": "是哪个端口；在 RoCE 上：{}",
    "exchange cable or transceiver, or leave this host out of the job": "更换线缆或光模块，或把这台主机移出作业",
    "reset or exchange the GPU with fewer links, or leave it out of the job": (
        "复位或更换链路较少的 GPU，或把它移出作业"
    ),
    "which link; reset the GPU, exchange cable or baseboard": "是哪条链路；复位 GPU，更换线缆或底板",
    "'Link Width' and 'Generation', current against max, while the job runs": (
        "作业运行时，比较 'Link Width' 和 'Generation' 的当前值与最大值"
    ),
    "reseat the card or its riser, look for a BIOS setting of the slot, or move the job to another GPU": (
        "重新插好显卡或转接卡，检查插槽的 BIOS 设置，或把作业移到另一块 GPU"
    ),
    "growing while the job runs; reseat the card, or use another GPU": (
        "在作业运行时是否增长；重新插好显卡，或换一块 GPU"
    ),
    "the governor; else power limits of the BIOS, or cooling": "调频策略；否则检查 BIOS 的功率限制或散热",
    "reset it, or exclude it with CUDA_VISIBLE_DEVICES": "复位它，或用 CUDA_VISIBLE_DEVICES 排除它",
}

_RANKS = {
    "around the forward pass too, or nothing is saved": "前向传播也要包住，否则没有任何节省",
    "the batches of one update": "一次更新的各个批次",
    "an update then has {} times the samples: adapt the learning rate": "每次更新的样本数因此是 {} 倍：请调整学习率",
    "instead of numpy.savez_compressed": "而不是 numpy.savez_compressed",
    "a queue.Queue; or event.wait(): returns at once when it is there": (
        "queue.Queue；或 event.wait()：东西一到就立即返回"
    ),
    "each rank has all experts, tables and positions: nothing is sent all to all": (
        "每个 rank 都有全部的专家、表和位置：不再有 all-to-all"
    ),
    "gradients of what is divided: averaged over mesh['data'] only": "被分开的部分的梯度：只在 mesh['data'] 上求平均",
    "needs nothing of received": "不需要 received 中的任何数据",
    "each of both groups gets samples of its own": "两组各取自己的样本",
    "without parallelize_module; each rank gets samples of its own": (
        "不再用 parallelize_module；每个 rank 取自己的样本"
    ),
    "where gradients are accumulated: half as many passes, and an update stays what it was": (
        "如果累积梯度：前向和反向传播次数减半，更新保持不变"
    ),
    "exchange the gradients here only, as now, then {}": "只在这里像现在一样交换梯度，然后 {}",
    "gradients stay whole until the last: memory for one more copy of the parameters": (
        "到最后一步之前梯度保持完整：需要再放一份参数的显存"
    ),
    "gradients stay whole until the last: memory for a copy of the parameters": (
        "到最后一步之前梯度保持完整：需要放一份参数的显存"
    ),
    "ZeRO 2 and 3 exchange in each backward pass even so: there raise {}": (
        "ZeRO 2 和 3 仍会在每次反向传播中交换：请调大 {}"
    ),
    "{} times what it is, with --micro-batch-size as it is": "现在的 {} 倍，--micro-batch-size 不变",
    "see: {}": "参见：{}",
    "older NCCL: NCCL_MAX_NCHANNELS=8; newer: NCCL_CTA_POLICY=1, as few as suffice": (
        "较旧的 NCCL：NCCL_MAX_NCHANNELS=8；较新的：NCCL_CTA_POLICY=1，够用即可"
    ),
    "{} unless it is set": "未设置时为 {}",
    "two blocks in each unit": "每个单元两个模块",
    "smaller buckets begin earlier": "桶越小，开始得越早",
    "begins later": "开始得更晚",
    "of fully_shard: which parameters come next": "用于 fully_shard：接下来是哪些参数",
    "each rank its part; batch_size is per rank": "每个 rank 一部分；batch_size 是每个 rank 的",
    "{}; a model too large for one GPU: {}": "{}；模型在一块 GPU 上放不下时：{}",
    "without torch.nn.SyncBatchNorm.convert_sync_batchnorm, if a rank has {} samples or more;": (
        "如果一个 rank 有 {} 个或更多样本，不用 torch.nn.SyncBatchNorm.convert_sync_batchnorm；"
    ),
    "needs no statistics of other samples": "不需要其他样本的统计量",
    "where the script sets it itself: leave that out": "若是脚本自己设置的：去掉那一行",
    "or however the script starts its {} ranks": "或者脚本启动 {} 个 rank 的其他方式",
    "before the job is started": "在启动作业之前",
    "or with cores of its own for each rank: {}=… taskset -c CORES python train.py": (
        "或者给每个 rank 自己的核：{}=… taskset -c CORES python train.py"
    ),
    "static_graph: if all steps use the same parameters; else {}": "static_graph：所有步使用相同的参数时；否则 {}",
    "the second with --use-distributed-optimizer": "第二个选项要与 --use-distributed-optimizer 一起用",
    "a unit per block: of one unit nothing overlaps": "每个模块一个单元：只有一个单元就无法重叠",
    "reduce_dtype=torch.float32 where sums must be exact": "求和必须精确时用 reduce_dtype=torch.float32",
    "instead of exchanging by hand; on GPUs device_ids=[local_rank] too": (
        "代替手动交换；在 GPU 上还要 device_ids=[local_rank]"
    ),
    "says NET/IB where it uses them, and why not": "使用它们时会输出 NET/IB，不用时会说明原因",
    "which ports, see ibv_devices; a container needs --device=/dev/infiniband": (
        "指定端口，参见 ibv_devices；容器需要 --device=/dev/infiniband"
    ),
    "torch.distributed.get_backend() says which is in use": "torch.distributed.get_backend() 会说明在用哪个",
    "before training, and read them below /dev/shm then": "训练之前执行，之后从 /dev/shm 下读取",
    "afterwards: it is memory": "训练之后执行：它占用内存",
    "without offload_policy=CPUOffloadPolicy()": "不带 offload_policy=CPUOffloadPolicy()",
    "DeepSpeed's configuration: no offload_optimizer; where it must stay, ratio of ZeRO-Offload++ below 1": (
        "DeepSpeed 的配置：去掉 offload_optimizer；必须保留时，让 ZeRO-Offload++ 的 ratio 小于 1"
    ),
    "before torch is imported": "在导入 torch 之前",
    "on each host, at the same time; of traces: {}": "在每台主机上同时运行；对于 trace：{}",
    "the same on all ranks": "所有 rank 都一样",
    "PyTorch from {} on writes which process group a collective is of": (
        "PyTorch 从 {} 起会写出集合通信属于哪个进程组"
    ),
    "shows each collective": "可以看到每一次集合通信",
    "without --accumulate-allreduce-grads-in-fp32": "不要同时用 --accumulate-allreduce-grads-in-fp32",
    "or half of what it is, with --global-batch-size as it is": "或减半，--global-batch-size 不变",
    "of the schedule of torch.distributed.pipelining": "torch.distributed.pipelining 的 schedule 的参数",
    "several smaller stages on each rank": "每个 rank 上放几个更小的阶段",
    "ScheduleInterleaved1F1B: several smaller stages on each rank": (
        "ScheduleInterleaved1F1B：每个 rank 上放几个更小的阶段"
    ),
}

COMMENTS = {**_DATA, **_PYTHON, **_GPU, **_MACHINE, **_RANKS}
