"""What makes calls of libraries cheaper that are slow in one known way."""

from collections.abc import Mapping

# By kinds as ``knowledge.slow_calls`` has them.
CHEAPER_CALLS: Mapping[str, str] = {
    "drawn": "请从列表、张量或数组中抽取：deque 要逐个走过元素才能按编号找到一个。用定长列表替换最旧的元素"
    "（items[count % capacity] = item）效果相同。一个批次的编号用一次调用全部抽出："
    "torch.randint(len(items), (batch_size,))。",
    "sparse parts": "按取用的方式保存矩阵：取行用 tocsr()，取列用 tocsc()，只转换一次。否则每取一部分都要遍历全部数值。"
    "csr 矩阵的转置是 csc。",
    "convolved": "可以分解为两个一维滤波器之积的滤波器（高斯、均值、二项式），用 convolve1d 沿每个轴各做一遍："
    "每个像素只需 2 n 次乘法，而不是 n * n 次。大的滤波器用 FFT 更快（scipy.signal.fftconvolve）。",
    "interpolated": "先切出需要的部分（留出边缘），只对它做变换。order=1 沿每个轴读取 2 个值，"
    "而默认的 order=3 读取 4 个值，并且事先对整个输入做滤波。",
    "unpacked": "每次访问 .npz 文件中的条目都会重新读取并解压。请一次取出数组，arrays = dict(numpy.load(path))，"
    "或把每个数组存成 .npy 文件：numpy.load(path, mmap_mode='r') 只读取用到的部分。",
    "yaml": "yaml.load(file, Loader=yaml.CSafeLoader) 用 C 解析。"
    "只在文件变化后才重新解析（os.stat(path).st_mtime_ns）。",
    "json": "只解析一次，把数值存成数组（numpy.save），或把样本存成 Arrow 或 Parquet；"
    "orjson.loads 解析同样的文本快几倍。",
    "copied": "只复制会改变的部分：array.copy()、list(rows)，或知道哪些部分可以共用的复制方法。"
    "deepcopy 在 Python 中逐个走过所有对象。",
    "quantiles": "对每个样本只计算一次并保留，或只用一部分数值（values[::16]）。几个分位数用一次调用求出："
    "numpy.percentile(values, [1, 99])。",
    "frames": "按顺序走过各帧，每帧一次，之后再把列表倒过来：往回走时要从第一帧起重新解码。"
    "或者把每个文件解码一次，存成磁盘上的数组。",
    "holidays": "一次算出所有年份的节假日，再查找日期：dates.isin(holidays)。",
    "vocabulary": "每次访问都会生成包含所有词的字典。"
    "请把它保存在一个变量中，或使用 len(tokenizer) 和 convert_tokens_to_ids。",
    "row groups": "无论用到多少，整个行组都会被读取并解码。请打乱行组的顺序，再在保留的几个行组内打乱行，"
    "或者写入更小的行组（row_group_size）。",
}
