"""How near operators come to the GPU's peak: operations counted as PyTorch counts them, and planted times."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.knowledge.hardware import find_peak
from perfdoctor.traces.account import account_for
from perfdoctor.traces.flops import count
from perfdoctor.traces.model import Inputs
from perfdoctor.traces.reader import read_trace
from perfdoctor.traces.roofline import Roofline, compare_with_peak
from tests.builders.traces import GEMM, GPU, MadeTrace, diagnose_traces
from tests.files import real

BF16 = "c10::BFloat16"
SGEMM = "ampere_sgemm_128x64_tn"


def inputs(*shapes: tuple[int, ...], dtype: str = BF16, values: tuple[str, ...] = ()) -> Inputs:
    return Inputs(shapes, (dtype,) * len(shapes), values)


def flops(name: str, given: Inputs) -> int | None:
    effort = count(name, given)
    return None if effort is None else effort.flops


@pytest.fixture(scope="module")
def counted() -> Callable[[Callable[[], object]], int]:
    """PyTorch's own count of the operations of a call. What it loads for that sets environment variables."""
    torch = pytest.importorskip("torch")
    counter: Any = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode

    def count_in(call: Callable[[], object]) -> int:
        with counter(display=False) as mode:
            call()
        return int(mode.get_total_flops())

    count_in(lambda: torch.zeros(2, 2, device="meta") @ torch.zeros(2, 2, device="meta"))
    return count_in


def test_operations_are_counted_as_pytorch_counts_them(counted: Callable[[Callable[[], object]], int]) -> None:
    """PyTorch runs the operators, on tensors without data."""
    torch = pytest.importorskip("torch")

    def tensor(*shape: int) -> Any:
        return torch.zeros(*shape, device="meta")

    aten = torch.ops.aten
    a, b = (5, 7), (7, 11)
    assert flops("aten::mm", inputs(a, b)) == counted(lambda: tensor(*a) @ tensor(*b))
    assert flops("aten::addmm", inputs((11,), a, b)) == counted(lambda: torch.addmm(tensor(11), tensor(*a), tensor(*b)))
    assert flops("aten::bmm", inputs((3, *a), (3, *b))) == counted(lambda: torch.bmm(tensor(3, *a), tensor(3, *b)))
    image, weight = (2, 6, 33, 30), (8, 3, 5, 3)
    settings = {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2], "groups": 2}
    written = tuple(str(settings[one]) for one in ("padding", "stride", "dilation"))
    forward = counted(lambda: torch.nn.functional.conv2d(tensor(*image), tensor(*weight), **settings))
    assert flops("aten::cudnn_convolution", inputs(image, weight, values=("", "", *written))) == forward
    assert flops("aten::miopen_convolution", inputs(image, weight, values=("", "", "", *written))) == forward
    # Of the gradient of grouped weights PyTorch counts as many operations as without groups.
    weight = (8, 6, 5, 3)
    output = tuple(torch.nn.functional.conv2d(tensor(*image), tensor(*weight), **{**settings, "groups": 1}).shape)
    args = ([0], [2, 1], [1, 0], [1, 2], False, [0, 0], 1, [True, True, False])
    backward = counted(lambda: aten.convolution_backward(tensor(*output), tensor(*image), tensor(*weight), *args))
    given = inputs(output, image, weight, values=("", "", "", *map(str, args)))
    assert flops("aten::convolution_backward", given) == backward
    query = (2, 4, 64, 32)
    attention = "aten::_scaled_dot_product_flash_attention"
    whole = counted(lambda: aten._scaled_dot_product_flash_attention(*[tensor(*query)] * 3))
    for causal, part in (("False", 1), ("True", 2)):
        given = inputs(query, query, query, values=("", "", "", "0.", causal, "False"))
        assert flops(attention, given) == whole // part


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("aten::mm", inputs((5, 7), (8, 11))),
        ("aten::mm", inputs((5,), (5,))),
        ("aten::mm", inputs()),
        ("aten::mm", inputs((5, 7), (7, 11), dtype="long int")),
        ("aten::mm", inputs((0, 7), (7, 11))),
        ("aten::mm", inputs((10**400, 7), (7, 10**400))),
        ("aten::mm", inputs((-5, 7), (7, 11))),
        ("aten::cudnn_convolution", inputs((2, 6, 33, 30), (8, 3, 5, 3))),
        ("aten::cudnn_convolution", inputs((2, 6, 33, 30), (8, 3, 5, 3), values=("", "", "[1]", "[0]", "[1]"))),
        ("aten::_scaled_dot_product_flash_attention", inputs((2, 4, 64, 32), (2, 4, 64, 32), (2, 4, 64, 32))),
        ("aten::relu", inputs((5, 7))),
    ],
)
def test_what_cannot_be_counted_is_not(name: str, given: Inputs) -> None:
    assert count(name, given) is None


@pytest.mark.parametrize(
    ("name", "half", "memory"),
    [
        ("NVIDIA H100 80GB HBM3", 989.5, 3350.0),
        ("NVIDIA B200", 2250.0, 7700.0),
        ("NVIDIA H200", 989.5, 4800.0),
        ("NVIDIA H100 PCIe", 756.5, 2000.0),
        ("NVIDIA A100-SXM4-40GB", 312.0, 1555.0),
        ("NVIDIA A100 80GB PCIe", 312.0, 1935.0),
        ("NVIDIA A10", 125.0, 600.0),
        ("Tesla T4", 65.0, 320.0),
        ("Tesla V100-SXM2-16GB", 125.0, 900.0),
        ("NVIDIA GeForce RTX 4090", 165.2, 1008.0),
        ("NVIDIA A800-SXM4-80GB", 312.0, 2039.0),
        ("AMD Instinct MI300X", 1307.4, 5300.0),
        # Instances of partitioned GPUs: 3 of 7 slices with half of the memory, and 1 with an eighth.
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 3 / 7 * 312.0, 1555.0 / 2),
        ("NVIDIA H200 MIG 1g.18gb", 989.5 / 7, 4800.0 / 8),
    ],
)
def test_gpus_are_known_by_the_names_that_drivers_tell(name: str, half: float, memory: float) -> None:
    peak = find_peak(name)
    assert peak is not None
    assert (peak.half, peak.memory) == pytest.approx((half, memory))


@pytest.mark.parametrize(
    "name", ["NVIDIA A10G", "NVIDIA L40S", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D",
             "NVIDIA H100 NVL", "NVIDIA H200 NVL", "Tesla V100-DGXS-32GB", "NVIDIA GeForce GTX 1080",
             "AMD Radeon Graphics", "NVIDIA A30 MIG 1g.6gb", ""],
)  # fmt: skip
def test_other_gpus_are_not_taken_for_known_ones(name: str) -> None:
    assert find_peak(name) is None


def made(kernel: str, taken: float, dtype: str, *, gpu: str = GPU, size: int = 8192) -> MadeTrace:
    trace = MadeTrace()
    trace.gpu(gpu)
    given = {"Input Dims": [[size, size], [size, size]], "Input type": [dtype, dtype], "Concrete Inputs": ["", ""]}
    trace.span("cpu_op", "aten::mm", 0.0, 50.0, args=given)
    trace.launch(kernel, 10.0, 60.0, 60.0 + taken)
    return trace


def compare(trace: MadeTrace, folder: Path) -> Roofline:
    return compare_with_peak(account_for(read_trace(trace.write(folder / "trace.json"))))


@pytest.mark.parametrize(
    ("kernel", "dtype", "rate"),
    [(GEMM, BF16, 989.5), ("cutlass_80_tensorop_s1688gemm", "float", 494.5), (SGEMM, "float", 67.0)],
)
def test_a_matrix_product_at_half_the_peak_reaches_half(tmp_path: Path, kernel: str, dtype: str, rate: float) -> None:
    needed = 2 * 8192**3 / (rate * 1e12) * 1e6
    [found] = compare(made(kernel, 2 * needed, dtype), tmp_path).operators
    assert found.least_ns / found.taken_ns == pytest.approx(0.5, rel=1e-3)
    assert not found.by_traffic


def test_the_traffic_of_a_thin_product_is_its_limit(tmp_path: Path) -> None:
    trace = made(GEMM, 200.0, BF16)
    trace.events[0]["args"]["Input Dims"] = [[8192, 8192], [8192, 1]]
    [found] = compare(trace, tmp_path).operators
    assert found.by_traffic
    assert found.least_ns == pytest.approx(2 * (8192 * 8192 + 2 * 8192) / 3350e9 * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (made(GEMM, 9000.0, BF16, gpu="NVIDIA GeForce GTX 1080"), "GTX 1080"),
        (made(GEMM, 9.0, BF16), "less than 10 us"),
        (made("mystery_gemm", 9000.0, "float"), "precision"),
        (made(GEMM, 9000.0, "double"), "precision"),
    ],
)
def test_what_cannot_be_compared_is_told(tmp_path: Path, trace: MadeTrace, words: str) -> None:
    found = compare(trace, tmp_path)
    assert not found.operators
    assert words in found.missing[0].reason


def test_a_trace_without_shapes_says_so(tmp_path: Path) -> None:
    trace = made(GEMM, 9000.0, BF16)
    trace.events[0]["args"] = {}
    path = trace.write(tmp_path / "trace.json")
    reasons = [one.reason for one in diagnose_traces([read_trace(path)]).not_examined if one.probe == "roofline"]
    assert "shapes" in reasons[0]


def test_the_achieved_fraction_stands_in_the_finding(tmp_path: Path) -> None:
    path = made(GEMM, 4000.0, BF16).write(tmp_path / "trace.json")
    finding = next(one for one in diagnose_traces([read_trace(path)]).findings if one.cause == "gpu.compute")
    [reached] = [str(one.value) for one in finding.evidence if one.name == "reached by"]
    assert reached == "aten::mm 8192x8192 8192x8192 bf16: 28% of peak arithmetic (100% of their time)"


def test_real_gpus_stay_below_their_peak() -> None:
    expected = {"owlv2-h100": (0.2, 0.4), "qwen-0.5b-h100": (0.4, 0.65), "segment-anything-a100-before": (0.6, 0.9)}
    for name, (low, high) in expected.items():
        found = compare_with_peak(account_for(read_trace(real(name))))
        value = found.numbers()["roofline"].value
        assert isinstance(value, float)
        assert low < value < high
        assert all(one.least_ns < one.taken_ns for one in found.operators[:10])
