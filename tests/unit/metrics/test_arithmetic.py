"""What the arithmetic is done in, by the machine code that trainers run."""

import pytest

from perfdoctor.metrics.arithmetic import has_compatible_blas, in_long_ffts
from perfdoctor.metrics.machine_code import SeenCode

TORCH = "libtorch_cpu.so"
OTHER, FFT = (
    SeenCode(TORCH, "mkl_blas_avx512_sgemm_kernel_nocopy_NT_b1", 400),
    SeenCode(TORCH, "prefetch_step_radix8_fwd", 420),
)


def steps(times: int) -> SeenCode:
    return SeenCode(TORCH, "mkl_dft_avx512_ippsMul_32fc", times)


def test_ffts_of_awkward_lengths_are_known_by_some_of_their_steps() -> None:
    assert in_long_ffts([OTHER, FFT, steps(180)]) == pytest.approx(0.6)  # all of them
    assert in_long_ffts([OTHER, FFT, steps(60)]) == pytest.approx(60 / 880 / 0.3)
    assert in_long_ffts([OTHER, FFT]) == 0
    assert in_long_ffts([SeenCode(TORCH, "prefetch_step_radix8_fwd", 3)]) is None  # too little was seen


def test_blas_with_the_same_results_everywhere_is_known_by_its_copies() -> None:
    copies = SeenCode(TORCH, "mkl_blas_cnr_def_sgemm_copyan", 40)
    assert has_compatible_blas([OTHER, copies])
    assert not has_compatible_blas([OTHER, copies._replace(times=2)])
    assert not has_compatible_blas([OTHER])
