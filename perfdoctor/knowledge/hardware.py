"""What GPUs can do at most, from their makers' data sheets: dense arithmetic without sparsity, and memory bandwidth."""

from __future__ import annotations

import re
from typing import NamedTuple

# Transfers of a lane per second by PCIe generation, in GT/s (PCI-SIG). The first two encode 8 bits in 10, later ones
# 128 in 130 or better, which is counted in: a generation carries twice what the one before it does.
PCIE_GT_PER_S = {1: 2.0, 2: 4.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}

# What NVML says of a partitioned GPU (MIG) as a whole and what is so for each of its instances: they have one clock,
# one link and one power supply. Power, energy and the link's bytes are of all of them together, and say nothing of one
# (NVIDIA's Multi-Instance GPU user guide and NVML's documentation).
SHARED_BY_INSTANCES = frozenset(
    (
        *("sm_clock_hertz", "sm_clock_max_hertz", "memory_clock_hertz", "temperature_celsius"),
        *(f"clocks_limited_by_{what}" for what in ("power", "power_brake", "heat", "hardware")),
        *("power_limit_watts", "power_limit_default_watts"),
        *("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max"),
        *("compute_capability", "numa_node"),
    )
)
# GPUs, by compute capability, whose power is read as a mean over 25 ms, less than most steps take: A100 and A30.
# Others from Ampere on show that of the last second (Yang, Adamek and Armour, arXiv 2312.02741).
MOMENTARY_POWER = frozenset(("8.0",))
# Those on which jobs were watched from outside (docs/accuracy-gpu.md): an H200.
_TRIED_FROM_OUTSIDE = frozenset(("9.0",))

# A GPU's name says which part of it an instance is: of 7 slices of its multiprocessors, and of its memory with the
# bandwidth that goes with it, in eighths (the same guide).
_SLICES, _MEMORY_PARTS = 7, 8
_INSTANCE = re.compile(r" MIG (?P<slices>\d)g\.(?P<gigabytes>\d+)gb")


class Peak(NamedTuple):
    """A GPU's limits; None where it has no such units, or none that its data sheet lists.

    Attributes:
        half: float16 or bfloat16, in TFLOP/s, as are the next two. Volta and Turing have float16 only.
        tf32: single-precision matrix products in tensor cores with shortened input.
        fp32: in full single precision; of AMD's GPUs the rate of their matrix cores.
        memory: GB/s.
        bf16: whether ``half`` holds for bfloat16 too.
        gigabytes: of memory; 0 for those that cannot be partitioned.
    """

    half: float
    tf32: float | None
    fp32: float
    memory: float
    bf16: bool = True
    gigabytes: int = 0


# The first that matches the name that the driver reports. Where a data sheet gives figures with sparsity only, they are
# halved. Above each row, who says so; compared as PyTorch's Inductor, Lightning and others quote it. What nobody was
# found to quote (NVIDIA's NVL boards, the V100 of DGX Stations) is not here.
_PEAKS: tuple[tuple[str, Peak], ...] = (
    # NVIDIA, Blackwell data sheet: one GPU of HGX B200 (4.5 and 2.2 PFLOP/s with sparsity).
    (r"\bB200\b", Peak(2250.0, 1100.0, 75.0, 7700.0, gigabytes=180)),
    # NVIDIA, H200 data sheet: H200 SXM; its arithmetic is the H100's.
    (r"\bH200\b(?! NVL)", Peak(989.5, 494.5, 67.0, 4800.0, gigabytes=141)),
    # NVIDIA, H100 data sheet (1979 and 989 TFLOP/s with sparsity).
    (r"\bH100 (80GB HBM3|SXM5?)\b", Peak(989.5, 494.5, 67.0, 3350.0, gigabytes=80)),
    # NVIDIA, H100 data sheet (1513 and 756 TFLOP/s with sparsity); memory: product brief PB-11133.
    (r"\bH100 PCIe\b", Peak(756.5, 378.0, 51.0, 2000.0, gigabytes=80)),
    # NVIDIA, A100 data sheet (nvidia-1758950), and its first edition for 40 GB. The A800 is the same with less NVLink
    # (400 instead of 600 GB/s; NVIDIA's statement of November 2022).
    (r"\bA[18]00-SXM4-80GB\b", Peak(312.0, 156.0, 19.5, 2039.0, gigabytes=80)),
    (r"\bA[18]00 80GB PCIe\b|\bA100-PCIE-80GB\b", Peak(312.0, 156.0, 19.5, 1935.0, gigabytes=80)),
    (r"\bA100-(SXM4|PCIE)-40GB\b", Peak(312.0, 156.0, 19.5, 1555.0, gigabytes=40)),
    # NVIDIA, A10 data sheet.
    (r"\bA10\b", Peak(125.0, 62.5, 31.2, 600.0)),
    # NVIDIA, L4 data sheet (242 and 120 TFLOP/s with sparsity).
    (r"\bL4\b", Peak(121.0, 60.0, 30.3, 300.0)),
    # NVIDIA, white paper on the Ada architecture (2.1): with sums in float32.
    (r"\bRTX 4090\b(?! D| Laptop)", Peak(165.2, 82.6, 82.6, 1008.0)),
    # NVIDIA, V100 data sheet (1165301).
    (r"\bV100-PCIE\b", Peak(112.0, None, 14.0, 900.0, bf16=False)),
    (r"\bV100-SXM2\b", Peak(125.0, None, 15.7, 900.0, bf16=False)),
    # NVIDIA, T4 data sheet (951643).
    (r"\bT4\b", Peak(65.0, None, 8.1, 320.0, bf16=False)),
    # AMD, MI300X data sheet.
    (r"\bMI300X\b", Peak(1307.4, 653.7, 163.4, 5300.0)),
    # AMD: 383 and 95.7 TFLOP/s for both dies, of which PyTorch sees one; memory: ROCm's page on the MI250, per die.
    (r"\bMI250X\b", Peak(191.5, None, 47.9, 1600.0)),
)


_AMD = re.compile("AMD|Radeon|Instinct")
# Small boards with Turing's multiprocessors, compute capability 7.5, have none: GTX 16, MX, T400 to T1200 (the TU116
# and TU117 of NVIDIA's CUDA GPUs page).
_WITHOUT_TENSOR_CORES = re.compile(r"\b(GTX|MX\d+|T[456]\d0|T1[02]00)\b")
# NVIDIA's first compute capability with TF32, and with bfloat16 in tensor cores (CUDA programming guide). Before,
# tensor cores need half precision and a change of the training recipe, which is advice and no bottleneck.
AMPERE = 8.0
# The first with tensor cores, for half precision (CUDA programming guide).
VOLTA = 7.0
# How many times as fast matrix products are in TF32 on GPUs that the table does not have, by the data sheets of their
# generation: 8 on the A100, 7 on the H100, 2 on A10 and L4; in 16 bits twice that. Before Ampere float16 is 8 times.
_TIMES_AS_FAST = 8.0
_TIMES_AS_FAST_OF = {8.6: 2.0, 8.9: 2.0}


def has_tf32(device: str, capability: float | None) -> bool:
    """Whether a GPU's tensor cores take matrix products of single precision, with shortened input."""
    return (capability or 0.0) >= AMPERE and not _AMD.search(device)


def needs_float16(device: str, capability: float | None) -> bool:
    """Whether a GPU has tensor cores, and for half precision only."""
    return VOLTA <= (capability or 0.0) < AMPERE and not _WITHOUT_TENSOR_CORES.search(device)


def tensor_core_speedup(device: str, capability: float | None, precision: str = "") -> float:
    """How many times as fast as ordinary units in fp32 tensor cores take matrix products, at best.

    Args:
        device: the GPU's name as its driver reports it; "" if that is not known.
        capability: its compute capability; None if that is not known.
        precision: ``tf32``, ``bf16`` or ``fp16``; "" for the fastest that it has.
    """
    half = "fp16" if VOLTA <= (capability or AMPERE) < AMPERE else "bf16"
    precision = precision or half
    peak = find_peak(device)
    rate = None if peak is None else arithmetic(peak, precision)
    if peak is not None and rate is not None:
        return max(1.0, rate / (peak.fp32 * 1e12))
    times = _TIMES_AS_FAST_OF.get(capability or 0.0, _TIMES_AS_FAST)
    return 2 * times if precision == "bf16" else times


def find_peak(device: str) -> Peak | None:
    """The limits of a GPU, or of an instance of one, by the name that its driver reports; None if it is not known."""
    peak = next((peak for pattern, peak in _PEAKS if re.search(pattern, device)), None)
    instance = _INSTANCE.search(device)
    if peak is None or instance is None:
        return peak
    return _of_instance(peak, int(instance["slices"]), int(instance["gigabytes"])) if peak.gigabytes else None


def _of_instance(peak: Peak, slices: int, gigabytes: int) -> Peak:
    part = slices / _SLICES
    memory = round(gigabytes / peak.gigabytes * _MEMORY_PARTS) / _MEMORY_PARTS
    return peak._replace(
        half=part * peak.half,
        tf32=None if peak.tf32 is None else part * peak.tf32,
        fp32=part * peak.fp32,
        memory=memory * peak.memory,
        gigabytes=gigabytes,
    )


def arithmetic(peak: Peak, precision: str) -> float | None:
    """Operations per second in a precision of ``perfdoctor.knowledge.profiler``; None where the table has no figure."""
    rates = {
        "bf16": peak.half if peak.bf16 else None,
        "fp16": peak.half,
        "tf32": peak.tf32,
        "fp32": peak.fp32,
    }
    rate = rates.get(precision)
    return None if rate is None else rate * 1e12


def tried_from_outside(capability: float | str | None) -> bool:
    """Whether jobs were watched on a GPU of this compute capability, 9.0 for instance."""
    return capability is not None and f"{float(capability):.1f}" in _TRIED_FROM_OUTSIDE


def pcie_bytes_per_s(generation: float, width: float) -> float:
    """What a PCIe link carries one way at best: 0.25 GB/s a lane in generation 1, twice that in each that follows."""
    return float(0.25e9 * 2.0 ** (generation - 1) * width)
