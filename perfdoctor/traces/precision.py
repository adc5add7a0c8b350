"""In which precision a matrix kernel computes, as its name tells."""

from __future__ import annotations

import re
from functools import lru_cache

# In this order: names of half-precision kernels also carry the type in which they accumulate. cuBLAS's nvjet kernels
# begin with the letters of their types (q, r: 8 bits; t: bfloat16; h: half; s: single); rocBLAS's Cijk_ kernels have
# them in the middle. ``s1688`` and ``s16816`` are instructions of tensor cores that accumulate in single precision; a
# kernel with them that names no half-precision type takes TF32.
_PRECISIONS = tuple(
    (precision, re.compile(pattern))
    for precision, pattern in (
        ("fp8", r"nvjet_(sm\d+_)?[qro]|e4m3|e5m2|f8f8|fp8|_[FB]8"),
        ("bf16", r"bf16|bfloat16|nvjet_(sm\d+_)?t|_B[BS]S_"),
        ("fp16", r"fp16|f16|_half|__half|c10::Half|hgemm|h(884|1688|16816|161616)|nvjet_(sm\d+_)?h|_H[HS]S_|_HB_"),
        ("tf32", r"tf32|xf32|s1688|s16816"),
        ("fp64", r"dgemm|zgemm|d884|f64|double|nvjet_(sm\d+_)?d|_DB_"),
        ("fp32", r"[sc]gemm|scudnn|simt_s|convolve_s|f32|float|nvjet_(sm\d+_)?s|_SB_|_S_B_"),
    )
)
PRECISIONS = tuple(precision for precision, _ in _PRECISIONS)


@lru_cache(maxsize=1024)
def name_precision(kernel: str) -> str:
    """One of ``PRECISIONS``; "" where the name does not tell."""
    return next((precision for precision, pattern in _PRECISIONS if pattern.search(kernel)), "")
