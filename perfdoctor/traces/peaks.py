"""What GPUs can do at most, from their makers' data sheets: dense arithmetic without sparsity, and memory bandwidth."""

from __future__ import annotations

import re
from typing import NamedTuple


class Peak(NamedTuple):
    """A GPU's limits; None where it has no such units, or none that its data sheet tells of.

    Attributes:
        half: float16 or bfloat16, in TFLOP/s, as are the next two. Volta and Turing have float16 only.
        tf32: single-precision matrix products in tensor cores with shortened input.
        fp32: in full single precision; of AMD's GPUs the rate of their matrix cores.
        memory: GB/s.
        bf16: whether ``half`` holds for bfloat16 too.
    """

    half: float
    tf32: float | None
    fp32: float
    memory: float
    bf16: bool = True


# The first that matches the name that the driver tells. Sources: NVIDIA's data sheets of the Tesla V100 (2020), T4
# (2019), A100 (2022), A10 (2021), L4 (2023), H100 (2024), H200 (2024) and HGX B200 (2025, an eighth of eight GPUs), and
# the Ada architecture's white paper (2023) for the RTX 4090, with sums in float32; AMD's data sheets of the MI250X
# (2022; PyTorch's device is one of its two dies, so half) and the MI300X (2023). Figures with sparsity are halved.
_PEAKS: tuple[tuple[str, Peak], ...] = (
    (r"\bB200\b", Peak(2250.0, 1125.0, 75.0, 8000.0)),
    (r"\bH200 NVL\b", Peak(835.5, 417.5, 60.0, 4800.0)),
    (r"\bH200\b", Peak(989.5, 494.5, 67.0, 4800.0)),
    (r"\bH100 NVL\b", Peak(835.5, 417.5, 60.0, 3900.0)),
    (r"\bH100 PCIe\b", Peak(756.5, 378.0, 51.0, 2000.0)),
    (r"\bH100 (80GB HBM3|SXM5?)\b", Peak(989.5, 494.5, 67.0, 3350.0)),
    (r"\bA100-SXM4-80GB\b", Peak(312.0, 156.0, 19.5, 2039.0)),
    (r"\bA100 80GB PCIe\b|\bA100-PCIE-80GB\b", Peak(312.0, 156.0, 19.5, 1935.0)),
    (r"\bA100-(SXM4|PCIE)-40GB\b", Peak(312.0, 156.0, 19.5, 1555.0)),
    (r"\bA10\b", Peak(125.0, 62.5, 31.2, 600.0)),
    (r"\bL4\b", Peak(121.0, 60.0, 30.3, 300.0)),
    (r"\bRTX 4090\b(?! D| Laptop)", Peak(165.2, 82.6, 82.6, 1008.0)),
    (r"\bV100-PCIE\b", Peak(112.0, None, 14.0, 900.0, bf16=False)),
    (r"\bV100-(SXM2|DGXS)\b", Peak(125.0, None, 15.7, 900.0, bf16=False)),
    (r"\bT4\b", Peak(65.0, None, 8.1, 320.0, bf16=False)),
    (r"\bMI300X\b", Peak(1307.4, 653.7, 163.4, 5300.0)),
    (r"\bMI250X\b", Peak(191.5, None, 47.9, 1638.4)),
)


def find_peak(device: str) -> Peak | None:
    """The limits of a GPU by the name that its driver tells; None if it is not in the table."""
    return next((peak for pattern, peak in _PEAKS if re.search(pattern, device)), None)


def arithmetic(peak: Peak, precision: str) -> float | None:
    """Operations per second in a precision of ``perfdoctor.traces.precision``; None where the table has no figure."""
    rates = {
        "bf16": peak.half if peak.bf16 else None,
        "fp16": peak.half,
        "tf32": peak.tf32,
        "fp32": peak.fp32,
    }
    rate = rates.get(precision)
    return None if rate is None else rate * 1e12
