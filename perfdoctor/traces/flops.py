"""Arithmetic and memory traffic of an operator, from what it was called with: matrix products, convolutions, attention.

The formulas are those of ``torch.utils.flop_counter``: two operations for each multiplication with its addition. The
traffic is the least there can be: every input read once and every output written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from perfdoctor.knowledge import profiler
from perfdoctor.traces.model import Inputs

# No call does more; a damaged file may say so.
_MOST = 2**62


@dataclass(frozen=True, slots=True)
class _Amount:
    """What one call has to do at least.

    Attributes:
        flops: operations.
        elements: of all tensors that are read or written.
        of: which argument's type the arithmetic has.
    """

    flops: int
    elements: int
    of: int = 0


@dataclass(frozen=True, slots=True)
class Effort:
    """What one call has to do at least, in operations and bytes.

    Attributes:
        dtype: element type as PyTorch writes it.
        shapes: the sizes that matter, for people.
    """

    flops: int
    bytes: int
    dtype: str
    shapes: str


def count(name: str, inputs: Inputs) -> Effort | None:
    """What a call of an operator has to do; None where what the trace shows does not determine it."""
    try:
        amount = COUNTED[name](inputs)
        dtype = inputs.types[amount.of]
        size = profiler.SCALAR_BYTES[dtype]
    except (KeyError, IndexError, ValueError, ZeroDivisionError):
        return None  # another overload, something that is not a tensor, or a value that was not recorded
    if not 0 < amount.flops < _MOST or not 0 < amount.elements < _MOST:
        return None
    text = " ".join("x".join(map(str, shape)) for shape in inputs.shapes[:3] if shape)
    return Effort(amount.flops, amount.elements * size, dtype, text)


def _product(left: tuple[int, ...], right: tuple[int, ...], of: int) -> _Amount:
    """Of matrices, or of as many pairs of them as there are."""
    if len(left) != len(right) or left[-1] != right[-2] or left[:-2] != right[:-2]:
        raise ValueError
    batch = math.prod(left[:-2])
    rows, inner, columns = left[-2], left[-1], right[-1]
    return _Amount(2 * batch * rows * inner * columns, batch * (rows * inner + inner * columns + rows * columns), of)


def _first_two(given: Inputs) -> _Amount:
    return _product(given.shapes[0], given.shapes[1], 0)


def _second_and_third(given: Inputs) -> _Amount:
    return _product(given.shapes[1], given.shapes[2], 1)


def _sizes(text: str) -> tuple[int, ...]:
    """A list of whole numbers as the profiler writes it: ``[1, 1]``."""
    return tuple(int(part) for part in text.strip("[]").split(","))


def _convolution(padding_at: int) -> Callable[[Inputs], _Amount]:
    """Of ``(input, weight, ...)``, with padding, stride and dilation from one argument on."""

    def counted(given: Inputs) -> _Amount:
        image, weight = given.shapes[:2]
        padding, stride, dilation = (_sizes(given.values[padding_at + one]) for one in range(3))
        output = [image[0], weight[0]]
        for one, size in enumerate(image[2:]):
            pick = [sizes[min(one, len(sizes) - 1)] for sizes in (padding, stride, dilation)]
            output.append((size + 2 * pick[0] - pick[2] * (weight[2 + one] - 1) - 1) // pick[1] + 1)
        return _convolved(tuple(output), image, weight, 1)

    return counted


def _convolution_backward(given: Inputs) -> _Amount:
    """Of ``(grad_output, input, weight, ..., output_mask)``: a convolution for each gradient that is asked for."""
    if given.values[7] != "False":  # transposed: the roles of the two images are exchanged
        raise ValueError
    wanted = given.values[10].strip("[]").split(",")[:2]
    output, image, weight = given.shapes[:3]
    return _convolved(output, image, weight, sum("True" in one for one in wanted))


def _convolved(output: tuple[int, ...], image: tuple[int, ...], weight: tuple[int, ...], times: int) -> _Amount:
    flops = 2 * math.prod(output) * math.prod(weight[1:])
    return _Amount(times * flops, times * (math.prod(output) + math.prod(image) + math.prod(weight)))


def _attention(first: int, causal_at: int, products: int) -> Callable[[Inputs], _Amount]:
    """Of query, key and value (batch, heads, length, size) from one argument on.

    Args:
        first: the query's place.
        causal_at: where ``is_causal`` stands; half of the work is not needed then.
        products: matrix products: two forward, five backward.
    """

    def counted(given: Inputs) -> _Amount:
        query, key, value = given.shapes[first : first + 3]
        batch, heads, length, size = query
        causal = {"True": 0.5, "False": 1.0}[given.values[causal_at]]
        flops = products * batch * heads * length * key[2] * (size + value[3])
        elements = 2 * math.prod(query) + math.prod(key) + math.prod(value)
        return _Amount(round(flops * causal), elements * (1 if products == _FORWARD else 2), first)

    return counted


# Matrix products of attention: scores and output; backward the scores once more, then a gradient each of weights,
# value, query and key.
_FORWARD, _BACKWARD = 2, 5
# Operators that call none of the others, so that nothing counts twice.
COUNTED: Mapping[str, Callable[[Inputs], _Amount]] = MappingProxyType({
    "aten::mm": _first_two,
    "aten::bmm": _first_two,
    "aten::_scaled_mm": _first_two,
    "aten::addmm": _second_and_third,
    "aten::baddbmm": _second_and_third,
    "aten::cudnn_convolution": _convolution(2),
    "aten::miopen_convolution": _convolution(3),
    "aten::convolution_backward": _convolution_backward,
    "aten::_scaled_dot_product_flash_attention": _attention(0, 4, _FORWARD),
    "aten::_scaled_dot_product_efficient_attention": _attention(0, 6, _FORWARD),
    "aten::_scaled_dot_product_cudnn_attention": _attention(0, 6, _FORWARD),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(1, 11, _BACKWARD),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(1, 11, _BACKWARD),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(1, 14, _BACKWARD),
})  # fmt: skip
