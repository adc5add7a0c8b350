"""Which of PyTorch's operators look like calls, though they compute: their machine code is sampled, one by one.

    python benchmarks/operators.py [NAME...]

Each works on large tensors for half a second, in the forward pass and, where it has one, the backward pass. What of its
samples is neither arithmetic nor a copy is what its calls take, a few percent at most, or a name that is missing in
``perfdoctor/knowledge/symbols.py``. Those with a function that takes more than 4 % of the time and is no arithmetic are
printed, with that function. With a new version of PyTorch, run this first.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch  # noqa: TID253
from torch import nn  # noqa: TID253
from torch.nn import functional  # noqa: TID253

sys.path.insert(0, str(Path(__file__).parent.parent))

from perfdoctor.knowledge.symbols import classify
from perfdoctor.probes.readers.perf_events import PerfEvent
from perfdoctor.probes.readers.symbols import AddressSpace, Images

SECONDS, HERTZ, TOLD = 0.5, 997, 0.04
ROW, SIDE = 1_000_000, 1000
UNARY = (
    "abs acos acosh angle asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor "
    "frac lgamma log log10 log1p log2 logit neg reciprocal round rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh "
    "trunc i0 nan_to_num special.erfcx special.i0e special.i1 special.i1e special.ndtri special.bessel_j0"
)
BINARY = (
    "add sub mul div pow maximum minimum fmod remainder atan2 hypot copysign logaddexp floor_divide eq lt fmax fmin "
    "nextafter heaviside polar special.xlog1py special.zeta"
)
OF_ROWS = (
    "sum mean std var prod amax argmax norm logsumexp cumsum cumprod cummax logcumsumexp softmax log_softmax sort "
    "argsort nanmedian flip diff"
)
ACTIVATIONS = (
    "relu gelu silu mish elu selu celu leaky_relu softplus hardswish hardtanh hardsigmoid softsign tanhshrink "
    "logsigmoid softshrink hardshrink dropout alpha_dropout normalize rrelu"
)
POOLS = "max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d max_pool1d avg_pool1d max_pool3d avg_pool3d"
LOSSES = (
    "mse_loss l1_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss soft_margin_loss hinge_embedding_loss "
    "binary_cross_entropy_with_logits multilabel_soft_margin_loss"
)
MATRICES = "linalg.inv linalg.det linalg.qr linalg.svdvals linalg.eigvals linalg.matrix_exp linalg.pinv cov corrcoef"
RANDOM = "normal_ exponential_ log_normal_ cauchy_ uniform_ random_ bernoulli_"
OPTIMIZERS = "SGD Adam AdamW Adagrad RMSprop Adadelta Adamax NAdam RAdam ASGD Rprop"

Call = Callable[[], Any]


def positive() -> torch.Tensor:
    return torch.rand(ROW).mul_(0.9).add_(0.05).requires_grad_()


def square() -> torch.Tensor:
    return torch.randn(SIDE, SIDE, requires_grad=True)


def images(channels: int = 16, side: int = 64) -> torch.Tensor:
    return torch.randn(8, channels, side, side, requires_grad=True)


def named(name: str, module: Any = torch) -> Callable[..., Any]:
    for part in name.split("."):
        module = getattr(module, part)
    found: Callable[..., Any] = module
    return found


def of_numbers() -> Iterator[tuple[str, Call]]:
    """Operators on one element at a time, reductions, and what puts elements elsewhere."""
    x, y = positive(), positive().detach()
    for name in UNARY.split():
        yield name, lambda name=name: named(name)(x)
    for name in BINARY.split():
        yield name, lambda name=name: named(name)(x.detach(), y)
    for name in OF_ROWS.split():
        for dim in (0, 1):
            arguments = {"dims": (dim,)} if name == "flip" else {"dim": dim}
            yield f"{name} {dim}", lambda name=name, given=arguments: named(name)(square(), **given)
    rows = torch.randint(0, SIDE, (SIDE, SIDE))
    wide = square()
    moves: dict[str, Call] = {
        "gather": lambda: wide.gather(1, rows),
        "scatter_add": lambda: torch.zeros_like(wide).scatter_add(1, rows, wide),
        "index_add": lambda: torch.zeros_like(wide).index_add(0, rows[0], wide),
        "index": lambda: wide[rows[0]],
        "masked_fill": lambda: wide.masked_fill(rows > 500, 0.0),
        "where": lambda: torch.where(rows > 500, wide, -wide),
        "repeat_interleave": lambda: wide.repeat_interleave(2, 0),
        "roll": lambda: wide.roll(5, 1),
        "tril": lambda: wide.tril(),
        "topk": lambda: wide.topk(10, 1)[0],
        "kthvalue": lambda: wide.kthvalue(10, 1)[0],
        "cat": lambda: torch.cat([wide, wide], 1),
        "half": lambda: wide.half(),
        "unique": lambda: rows.unique(),
        "bincount": lambda: rows.flatten().bincount(),
        "searchsorted": lambda: torch.searchsorted(torch.arange(SIDE), rows),
        "histc": lambda: wide.detach().histc(100),
        "nonzero": lambda: (rows > 500).nonzero(),
        "one_hot": lambda: functional.one_hot(rows[:5], SIDE),
        "multinomial": lambda: torch.multinomial(wide.detach().abs(), 20),
        "randperm": lambda: torch.randperm(ROW),
        "poisson": lambda: torch.poisson(y),
    }
    yield from moves.items()
    for name in RANDOM.split():
        yield name, lambda name=name: named(name, torch.empty(ROW))()


def of_layers() -> Iterator[tuple[str, Call]]:
    """Layers, activations, losses."""
    wide, picture, volume = square(), images(), torch.randn(4, 8, 16, 32, 32, requires_grad=True)
    for name in ACTIVATIONS.split():
        yield name, lambda name=name: named(name, functional)(wide)
    for name in POOLS.split():
        size = 8 if "adaptive" in name else 2
        given = volume if "3d" in name else picture if "2d" in name else wide[None]
        yield name, lambda name=name, given=given, size=size: named(name, functional)(given, size)
    for name in LOSSES.split():
        yield name, lambda name=name: named(name, functional)(wide, torch.ones(SIDE, SIDE))
    for mode in ("nearest", "bilinear", "bicubic"):
        yield mode, lambda mode=mode: functional.interpolate(picture, scale_factor=2, mode=mode)
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield f"pad {mode}", lambda mode=mode: functional.pad(picture, (4, 4, 4, 4), mode=mode)
    convolutions: dict[str, tuple[nn.Module, torch.Tensor]] = {
        "conv1d": (nn.Conv1d(64, 64, 5), torch.randn(16, 64, 2000)),
        "conv2d": (nn.Conv2d(16, 32, 3), picture),
        "conv2d of groups": (nn.Conv2d(16, 16, 3, groups=16), picture),
        "conv2d dilated": (nn.Conv2d(16, 32, 3, dilation=2), picture),
        "conv2d in 64 bits": (nn.Conv2d(16, 16, 3).double(), picture.detach().double()),
        "conv3d": (nn.Conv3d(8, 16, 3), volume),
        "transposed": (nn.ConvTranspose2d(16, 16, 4, 2), picture),
        "transposed 3d": (nn.ConvTranspose3d(8, 8, 4, 2), volume[:1]),
        "LSTM": (nn.LSTM(128, 256), torch.randn(64, 64, 128)),
        "GRU": (nn.GRU(128, 256), torch.randn(64, 64, 128)),
    }
    for name, (layer, given) in convolutions.items():
        yield name, lambda layer=layer, given=given: first(layer(given))
    attention, text = nn.MultiheadAttention(256, 8, batch_first=True), torch.randn(16, 128, 256, requires_grad=True)
    table, words = torch.randn(20_000, 256, requires_grad=True), torch.randint(0, 20_000, (2000, 10))
    logits, labels = torch.randn(200, 16, 50).log_softmax(-1).requires_grad_(), torch.randint(1, 50, (16, 30))
    others: dict[str, Call] = {
        "attention": lambda: first(attention(text, text, text)),
        "scaled_dot_product_attention": lambda: functional.scaled_dot_product_attention(text, text, text),
        "embedding": lambda: functional.embedding(words, table),
        "embedding_bag": lambda: functional.embedding_bag(words, table, mode="max"),
        "batch_norm": lambda: functional.batch_norm(picture, None, None, training=True),
        "group_norm": lambda: functional.group_norm(picture, 4),
        "layer_norm": lambda: functional.layer_norm(wide, (SIDE,)),
        "rms_norm": lambda: functional.rms_norm(wide, (SIDE,)),
        "local_response_norm": lambda: functional.local_response_norm(picture, 5),
        "unfold": lambda: functional.unfold(picture, 3),
        "pixel_shuffle": lambda: functional.pixel_shuffle(picture, 2),
        "grid_sample": lambda: functional.grid_sample(picture, torch.rand(8, 64, 64, 2), align_corners=False),
        "cross_entropy": lambda: functional.cross_entropy(wide, torch.arange(SIDE)),
        "ctc_loss": lambda: functional.ctc_loss(logits, labels, torch.full((16,), 200), torch.full((16,), 30)),
        "cdist": lambda: torch.cdist(wide[:, :64], wide[:, :64]),
    }
    yield from others.items()


def of_matrices() -> Iterator[tuple[str, Call]]:
    """Products and decompositions, transforms, sparse tensors, optimizers."""
    matrix = torch.randn(500, 500, requires_grad=True)
    small = torch.randn(2500, 10, 10) + 60 * torch.eye(10)
    for name in MATRICES.split():
        yield name, lambda name=name: named(name)(matrix.detach())
    for kind in (torch.float32, torch.float64, torch.bfloat16, torch.complex64):
        yield f"product of {kind}", lambda kind=kind: matrix.detach().to(kind) @ matrix.detach().to(kind)
    yield "matrix and vector", lambda: matrix @ matrix[0]
    yield "einsum", lambda: torch.einsum("ij,kj->ik", matrix, matrix)
    for name in ("inv", "cholesky", "svdvals", "eigvalsh", "det"):
        yield f"small {name}", lambda name=name: named(name, torch.linalg)(small @ small.mT)
    for length in (2048, 2000, 1999):
        signal = torch.randn(500, length, requires_grad=True)
        spectrum = torch.fft.rfft(signal.detach())
        yield f"fft of {length}", lambda signal=signal: torch.view_as_real(torch.fft.fft(signal))
        yield f"rfft of {length}", lambda signal=signal: torch.view_as_real(torch.fft.rfft(signal))
        yield f"irfft of {length}", lambda spectrum=spectrum: torch.fft.irfft(spectrum)
    window, sound = torch.hann_window(400), torch.randn(16, 16_000, requires_grad=True)
    yield "stft", lambda: torch.stft(sound, 400, 160, window=window, return_complex=True).abs()
    places, numbers, dense = torch.randint(0, 5000, (2, 100_000)), torch.randn(100_000), torch.randn(5000, 64)
    sparse = torch.sparse_coo_tensor(places, numbers, (5000, 5000)).coalesce()
    rows = sparse.to_sparse_csr()
    yield "coalesce", lambda: torch.sparse_coo_tensor(places, numbers, (5000, 5000)).coalesce()
    yield "sparse product", lambda: torch.sparse.mm(sparse, dense)
    yield "sparse product by rows", lambda: rows @ dense
    yield "sparse sum", lambda: sparse + sparse
    yield "sparse softmax", lambda: torch.sparse.softmax(sparse, 1)
    yield "to_dense", lambda: sparse.to_dense()
    for name in OPTIMIZERS.split():
        weight = square()
        weight.grad = torch.randn(SIDE, SIDE)
        yield name, named(name, torch.optim)([weight], lr=1e-3).step


def first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


def once(call: Call) -> None:
    result = first(call())
    if isinstance(result, torch.Tensor) and result.requires_grad and not result.is_sparse:
        result.sum().backward()


def sampled(call: Call) -> list[int]:
    """Where in machine code this thread was, while it made the call again and again."""
    once(call)
    event, addresses = PerfEvent(threading.get_native_id(), HERTZ), list[int]()
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        once(call)
        addresses += [place.address for place in event.read()]
    event.close()
    return addresses


def main() -> None:
    torch.set_num_threads(1)
    wanted, images_seen = set(sys.argv[1:]), Images()
    space = AddressSpace(Path(f"/proc/{os.getpid()}"), images_seen)
    seen: dict[str, list[tuple[str, int]]] = {}
    for name, call in (*of_numbers(), *of_layers(), *of_matrices()):
        if not wanted or name in wanted:
            addresses = sampled(call)
            space.begin()
            seen[name] = [space.place(address) for address in addresses]
    symbols = {(image, offset): symbol for image, offset, symbol in images_seen.functions()}
    for name, places in seen.items():
        functions = Counter((image, symbols.get((image, offset), "")) for image, offset in places)
        for (image, symbol), count in functions.most_common(3):
            kind = classify(image, symbol)
            if kind in ("dispatch", "library", "other") and count > TOLD * len(places):
                print(f"{name:30} {count / len(places):4.0%} {kind} {image} {symbol[:100]}")
    print(f"{len(seen)} operators")


if __name__ == "__main__":
    main()
