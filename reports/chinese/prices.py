"""What a change gives up for its gain."""


def updates() -> str:
    return "代价：同样多的样本只更新较少的次数。请按已看过的样本数比较损失；学习率可能要随之调整。"


def lost_work() -> str:
    return "代价：崩溃之后，要重做的步数也相应增多。"


def coarser() -> str:
    return "代价：所得数值的波动更大。"


def processes() -> str:
    return "代价：每个 worker 在准备数据时占用一个核，并有自己的内存；其中的随机数来自它自己的种子。"


def seen_later() -> str:
    return "代价：它所提供的信息来得更晚，也更粗略。"
