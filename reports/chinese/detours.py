"""What the job's own source does again, or for nothing, and what it says itself of a better way."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix, percent

# Of each statement what stays, what is new, and how the result is put.
_Pieces = tuple[tuple[str, str, str], ...]


def _and(texts: list[str]) -> str:
    return "、".join(dict.fromkeys(texts))


def joined_cut(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在 {line} 把新数据就地写入 {_and([one for one, _, _ in pieces])}",
        f"{percent(share)} 的时间花在那里：每次只为添加一点数据，就要重新拼接并复制全部已保存的数据。"
        "新数据每次都必须放进去：只创建一次完整大小的张量，把新数据写到最旧数据的位置。之后它的起点可以在任意位置，"
        "对于读取全部数据或从中采样的代码没有区别。",
    )


def joined(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"不要在 {line} 每次重新拼接 {_and([one for one, _, _ in pieces])}",
        f"{percent(share)} 的时间花在那里：每次只为添加一点数据，就要复制已有的全部数据，而且越长越慢。",
    )


def one_hot(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在 {line} 直接查表取行，而不是乘以由零和一组成的矩阵",
        f"{percent(share)} 的时间花在那里，还不包括它的反向传播：几乎所有乘法都是乘以零。结果和梯度都相同。",
    )


def two_passes(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在 {line} 对损失之和只做一次反向传播",
        f"{percent(share)} 的时间花在这两次反向传播上，两个损失共同的部分走了两遍。"
        "梯度是相加的：对它们的和求得的梯度相同。",
    )


def one_by_one(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在 {line} 用一次调用求多个导数",
        f"{percent(share)} 的时间花在这些调用上，每次调用都要走完被求导量的整个计算图。"
        "一次调用只走一遍，得到的导数相同。",
    )


def indexed_late(*, line: str, share: float, pieces: _Pieces) -> Fix:
    layers = _and([one for one, _, _ in pieces])
    return fix(
        f"在 {line} 只把用到的位置交给 {layers}",
        f"{percent(share)} 的时间花在那里，还不包括它的反向传播：{layers} 对每个位置分别做同样的计算，"
        "之后却只用其中一个。",
    )


def enlarged(*, line: str, share: float, pieces: _Pieces) -> Fix:
    layers = _and([one for one, _, _ in pieces])
    return fix(
        f"在 {line} 放大 {layers} 的输出，而不是放大它的输入",
        f"{percent(share)} 的时间花在那里，还不包括它的反向传播：{layers} 对每个位置分别做同样的计算，"
        "而放大对所有通道做同样的计算，两者先后可以互换。先算这一层，要处理的位置更少，要放大的通道通常也更少。",
    )


def turned(*, line: str, share: float, pieces: _Pieces) -> Fix:
    losses = _and([one for one, _, _ in pieces])
    return fix(
        f"在 {line} 按类别在内存中的排列交给 {losses}",
        f"{percent(share)} 的时间花在那里，还不包括它的反向传播：转到第二维之后，同一位置的各个分数相隔很远，"
        "要跳着读。展平成一个长批次的行，它们就彼此相邻；损失不变（分数为三维时）。",
    )


def _of_pairs(line: str, share: str) -> tuple[str, str]:
    return (
        f"把 {line} 的两两计算写成矩阵乘法",
        f"{share}：两个矩阵的行相互展开，每一对的所有数都写进内存、再读出来，最后每一对只剩一个数。一次线性代数调用"
        "直接得到这个数，不必写出其余的数。结果只在末几位有差别；接近零的距离差别可能稍大。",
    )


def all_pairs(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(*_of_pairs(line, f"{percent(share)} 的时间花在那里，还不包括它的反向传播"))


def pairs_forward(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(*_of_pairs(line, f"{percent(share)} 的时间花在那里"))


def unchanged(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"保留 {line} 处 {_and([text for text, _, _ in pieces[:3]])} 的结果：它在每一步中都相同",
        f"{percent(share)} 的时间花在那里，而它所依据的一切在训练循环中都不变。请在循环之前创建并传入，"
        "或按下面的方式保留：换了别的对象时会重新创建。如果有代码写入该结果，就不要改。",
    )


def copied(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在 {line} 把数值复制到 {_and([one for one, _, _ in pieces])} 中，而不是创建新的对象",
        f"{percent(share)} 的时间花在那里：所有对象都要重新创建，每个张量都要分配新的内存。"
        "只复制数值所需的时间少得多。",
    )


def listed(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在 {line} 先用一次调用把数组合在一起，再由它创建张量",
        f"{percent(share)} 的时间花在那里：由列表创建张量时，要经过 Python 逐个取数。",
    )


def stacked(*, line: str, share: float, pieces: _Pieces) -> Fix:
    kept = pieces[0][0]
    return fix(
        f"把 {kept} 存为张量，在 {line} 用一次调用取出一个批次的所有行",
        f"{percent(share)} 的时间花在那里：样本从 {kept} 中抽取后，经过 Python 逐个拼在一起。"
        "如果张量的每一行就是一个样本，一次调用即可取出一个批次的所有行。",
    )


def carried(*, line: str, share: float, pieces: _Pieces) -> Fix:
    kept = pieces[0][0]
    return fix(
        f"在 {line} 让 {kept} 在各轮之间 detach",
        f"{percent(share)} 的时间花在这次反向传播上。{kept} 带着计算图从循环的一轮传到下一轮，而计算图又被保留："
        "每次反向传播都要穿过之前的所有轮，越来越久。如果梯度不必回传那么远，就在每一轮（或每十轮）开头切断计算图。",
    )


def averaged(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在 {line} 用一次调用求所有参数的平均",
        f"{percent(share)} 的时间花在那里：逐个参数处理，每个都要经过 Python 和单独的调用。",
    )


def descended(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在 {line} 用一次调用更新所有参数",
        f"{percent(share)} 的时间花在那里：逐个参数处理，每个都要经过 Python 和单独的调用。",
    )


def made_new(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在 {line} 原地更新",
        f"{percent(share)} 的时间花在那里：其中每个和、每个积都会创建一个新张量，要取用新的内存并再次遍历。"
        "名称以 _ 结尾的方法直接写入已有的张量。",
    )


def modules_made(*, line: str, share: float, pieces: _Pieces) -> Fix:
    what = _and([one for one, _, _ in pieces]) or "这些层"
    return fix(
        f"在循环之前只创建一次 {what}，不要在 {line} 创建",
        f"{percent(share)} 的时间花在那里：每一步都新建层，并重新随机初始化权重。只创建一次，权重就会保留；"
        "如果每一步需要不同的权重，可以向已有的层中重新写入随机数。",
    )


def checked(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        "让概率分布不再检查取值",
        f"{percent(share)} 的时间里，torch.distributions 在检查参数和样本，例如在 {line}；"
        "在 GPU 上，每次检查还要等待 GPU。这项检查默认开启，是为尚未调通的模型准备的。",
    )


def proxied(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"把 {line} 访问的内容放在共享内存里，而不是 manager 的进程里",
        f"{percent(share)} 的时间花在那里：每访问一次 manager 的列表、字典或值，都要向它的进程发一条消息并等待回答。"
        "共享内存里的张量可以由所有进程直接读写，一次调用就能处理许多元素。必须使用 manager 时，一次存取多个元素："
        "kept[3:9] 只是一条消息。",
    )


def rotated(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        "让日志文件更大一些再换新文件",
        f"{percent(share)} 的时间花在换新文件上（例如 {line}）：每次都要把保留的所有文件逐个改名。",
    )


def activation(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        "使用 torch 一次算完的激活函数",
        f"前向传播中 {percent(share)} 的时间花在激活函数里（例如 {line}），反向传播还要把同样的运算再走一遍："
        "gelu_new 和 gelu_fast 是用 Python 写成的幂、乘积、求和与 tanh，每一步都写出一个新张量。"
        "gelu_pytorch_tanh 是同一个函数。在创建模型之前写进配置，或传给 from_pretrained；有些模型里它叫 hidden_act。",
    )


def uncached(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在 {line} 生成文本时保留键和值",
        f"{percent(share)} 的时间用于生成文本，而 use_cache=False 使模型每生成一个 token 都要重新处理整段文本。"
        "有缓存时只需处理新的 token，生成的结果相同。只有使用激活检查点的训练才不能用缓存。",
    )


def formatted(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"不在每一步把张量变成文本（{line}）",
        f"{percent(share)} 的时间花在这上面：数值逐个读出、比较、写成文字。f-string 无论如何都会生成，"
        "即使日志记录器根本不要它；而一个范数往往就够说明问题。",
    )


def computed_again(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在每一步中只计算一次 {line} 处的参数化权重",
        f"{percent(share)} 的时间花在计算这类权重（torch.nn.utils.parametrize）上：循环的每一轮都重新计算，"
        "反向传播每次也要穿过这些计算。梯度不变。",
    )


def weights_unused(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"在 {line} 不让 {pieces[0][0]} 计算没有人使用的权重",
        f"仅注意力权重的 softmax 就占 {percent(share)} 的时间，还不算前后的乘积和它们的反向传播。"
        "除非设置 need_weights=False，这一层会返回权重，因此要把所有配对写入内存。"
        "不返回时由一个融合的操作完成，输出相同。",
    )


def written_out(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return fix(
        f"让 scaled_dot_product_attention 完成 {line} 处的注意力计算",
        f"{percent(share)} 的时间花在那里，还不算反向传播：所有配对的权重都写入内存，"
        "每个操作再读一遍。融合之后就不必写出。掩码传给 attn_mask（True 表示参与注意力），因果掩码用 is_causal=True；"
        "其他缩放传给 scale，dropout 传给 dropout_p。",
    )
