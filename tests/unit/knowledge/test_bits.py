"""Of how many bits the numbers are that a kernel works on."""

import pytest

from perfdoctor.knowledge.symbols import bits, unfolds

CPU = "libtorch_cpu.so"
LOOP = "_ZN3c1012function_refIFvPPcPKlllEE11callback_fnIN2at6native4AVX216VectorizedLoop2dIZ_10mul_kernelE_"


@pytest.mark.parametrize(
    ("image", "symbol", "width"),
    [
        (CPU, "mkl_blas_def_dgemm_kernel_zen", 64),
        (CPU, "mkl_blas_avx512_sgemm_kernel_0", 32),
        ("libopenblas.so", "cblas_dgemv", 64),
        ("libopenblas.so", "sdot_k_HASWELL", 32),
        (CPU, LOOP + "clEvEUlddE_ZZENKSG_clEvEUlNS8_3vec4AVX210VectorizedIdEESL_E", 64),
        (CPU, LOOP + "clEvEUlffE_ZZENKSG_clEvEUlNS8_3vec4AVX210VectorizedIfEESL_E", 32),
        (CPU, "_ZZNK4dnnl4impl3cpu3x6432brgemm_convolution_bwd_strided_t", 32),
        (CPU, "_ZZN2at6native12_GLOBAL__N_114unfolded2d_accIdEEvPT_S4_lllllllllllENKUlllE_clEll", 64),
        (CPU, "_ZN2at6nativeL7col2imIdEEvPKT_lllllllllllllPS2_b", 64),
        (CPU, "mkl_vml_kernel_dTanh_Z0HAynn", 64),
        (CPU, "mkl_vml_kernel_sTanh_Z0HAynn", 32),
        (CPU, "Sleef_finz_erfd8_u10avx512f", 64),
        (CPU, "Sleef_finz_erff16_u10avx512f", 32),
        ("[jit]", "", 32),
        (CPU, "_ZN2at16CPUGeneratorImpl8random64Ev", None),
        (CPU, "_ZN2at6detail20dispatch_and_trigger", None),
        ("libpython3.11.so.1.0", "_PyEval_EvalFrameDefault", None),
    ],
)
def test_names_say_how_wide_numbers_are(image: str, symbol: str, width: int | None) -> None:
    assert bits(image, symbol) == width


@pytest.mark.parametrize(
    ("symbol", "laid_out"),
    [
        ("_ZZN2at6native12_GLOBAL__N_115unfolded2d_copyIdEEvPKT_PS3_lllllllllllENKUlllE_clEll", True),
        ("_ZN2at6nativeL7col2imIdEEvPKT_lllllllllllllPS2_b", True),
        ("mkl_blas_avx512_dgemm_kernel_nocopy_NN_b1", False),
    ],
)
def test_convolutions_without_onednn_lay_their_windows_out(symbol: str, laid_out: bool) -> None:
    assert unfolds(symbol) is laid_out
