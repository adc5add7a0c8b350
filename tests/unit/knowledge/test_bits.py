"""Of how many bits the numbers are that a kernel works on."""

import pytest

from perfdoctor.knowledge.symbols import bits

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
        ("[jit]", "", 32),
        (CPU, "_ZN2at16CPUGeneratorImpl8random64Ev", None),
        (CPU, "_ZN2at6detail20dispatch_and_trigger", None),
        ("libpython3.11.so.1.0", "_PyEval_EvalFrameDefault", None),
    ],
)
def test_names_say_how_wide_numbers_are(image: str, symbol: str, width: int | None) -> None:
    assert bits(image, symbol) == width
