"""Kernels that bear their compiler's names, as in traces of Windows, do what their readable names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfdoctor.causes import GPU_COMPUTE, MEMORY_BANDWIDTH
from perfdoctor.traces.mangling import readable
from tests.builders import traces

_ADD = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLy3EEEEviT0_T1_"
_NORM = "_ZN5cudnn25bn_fw_tr_1C11_kernel_NCHWIffiLi128ELb1ELi1ELb1EEEv17cudnnTensorStructPKT_S1_PS2_PKT0_S8_S6_S6_PS6_"
_LAYOUT = (
    "_ZN5cudnn19engines_precompiled16nchwToNhwcKernelIfffLb0ELb1EL21cudnnKernelDataType_t2EEEvNS0_18nchw2nhwc_params_t"
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (_ADD, "at::native::vectorized_elementwise_kernel<CUDAFunctor_add, array>"),
        (_NORM, "cudnn::bn_fw_tr_1C11_kernel_NCHW<cudnnTensorStruct>"),
        (_LAYOUT, "cudnn::engines_precompiled::nchwToNhwcKernel<cudnnKernelDataType_t, nchw2nhwc_params_t>"),
        ("_ZN2at6native12_GLOBAL__N_121max_pool_forward_nchwEPKfl", "at::native::max_pool_forward_nchw"),
        ("_Z13gemmk1_kernelv", "gemmk1_kernel"),
        ("_Z9fp8_scale6__half", "fp8_scale"),
        ("_Z23implicit_convolve_sgemmIffLi1024EEviiiPKT_6params", "implicit_convolve_sgemm<params>"),
        ("_ZL", "_ZL"),
        ("_Z", "_Z"),
        ("_Z99short", "short"),
        ("ampere_sgemm_32x32_sliced1x4_tn", "ampere_sgemm_32x32_sliced1x4_tn"),
    ],
)  # fmt: skip
def test_the_words_of_a_name_are_found(name: str, expected: str) -> None:
    assert readable(name) == expected


def test_normalisation_is_memory_traffic_under_either_name(tmp_path: Path) -> None:
    made = traces.MadeTrace()
    made.gpu()
    for at in range(10):
        made.launch(_NORM, at * 1000, at * 1000 + 5, at * 1000 + 995)
    found = traces.shares(made, tmp_path)
    assert found[MEMORY_BANDWIDTH] > 0.9
    assert found.get(GPU_COMPUTE, 0) == 0
