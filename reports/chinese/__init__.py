"""Simplified Chinese: the same functions as in ``reports/english``, with the same parameters.

A fix without a change of its own takes the English one's: code is written once. One word for one thing:

=========================  ============================================================
job                        作业
trainer, worker, rank      训练进程、worker 进程、rank
step, phase                训练步、阶段
batch, batch size          批次、批大小
sample                     样本 (of data), 采样点 (of a probe)
input, data loading        输入数据、数据加载
operator, kernel           算子、kernel (of a GPU; 内核 is that of Linux)
launch, dispatch           启动、分发
forward, backward          前向传播、反向传播
collective                 集合通信
GPU memory, memory         显存、内存
pinned memory              锁页内存
synchronise                同步
core, core clock           核、频率
contention, throttled      争抢、限流 (of a quota), 降频 (of a clock)
straggler                  掉队 rank
checkpoint                 检查点 (a file); activation checkpointing is 激活重计算
GC, GIL                    垃圾回收（GC）、GIL
bottleneck, cause          瓶颈、原因
verdict, finding, evidence 结论、发现、证据
share, wall time           占比、墙钟时间
speed-up, confidence       加速比、置信度
=========================  ============================================================

Sentences have full-width punctuation, and a blank stands between Han and Latin letters or digits.
"""
