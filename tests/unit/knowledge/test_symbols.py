"""Names as they occur in real builds, and what they stand for."""

import pytest

from perfdoctor.knowledge.symbols import (
    classify,
    is_by_convolution,
    is_compatible,
    is_fft,
    is_without_onednn,
    multiplies,
    reduces_by_number,
    traces_memory,
    walks,
)

LOOP = "_ZN3c1012function_refIFvPPcPKlllEE11callback_fnIN2at6native4AVX216VectorizedLoop2dIZZZNS6_12_GLOBAL__N_1"
ARM_LOOP = "_ZN3c1012function_refIFvPPcPKlllEE11callback_fnIZN2at18TensorIteratorBase15loop_2d_from_1d"
RECORDED = "_ZN2at12_GLOBAL__N_110CacheEntry22rebuildActiveCallbacksEv"
LOOKUP = "_ZNK3c104impl13OperatorEntry6lookupENS_14DispatchKeySetE"
FOR_EACH = "_ZNK2at18TensorIteratorBase15serial_for_eachEN3c1012function_refIFvPPcPKlllEEENS_5RangeE"
FOR_EACH_REDUCED = "_ZN2at18TensorIteratorBase19foreach_reduced_eltEN3c1012function_refIFvRS0_EEEb"
FUNCTOR = "_ZN3c104impl28wrap_kernel_functor_unboxed_INS0_6detail31WrapFunctionIntoFunctor_"
MAX_POOL = "_ZN2at6native12_GLOBAL__N_112cpu_max_poolIfLb0EEEvRKNS_6TensorES5_S5_N3c108ArrayRefIlEE"
NATIVE = "_ZN2at6native12_GLOBAL__N_1"
BICUBIC = f"{NATIVE}24basic_loop_non_separableIflLi2ELi4EEEvPPcPKll"
TRIANGLE = "_ZZN2at6native12_GLOBAL__N_115apply_triu_trilIfEEvRKNS_6TensorES5_blbENKUlllE_clEll"
SORT = "_ZSt16__introsort_loopIN2at6native23CompositeRandomAccessorIPfPlNS1_12TupleInfoCPUEEElN9__gnu_cxx5__ops15_Iter"
TRANSPOSE = "_ZZN12_GLOBAL__N_125copy_same_type_transpose_ERN2at6TensorERKS1_ENKUlvE_clEv.isra.0"
GRID = f"{NATIVE.replace('ZN', 'ZNK')}15ApplyGridSampleIfE8backwardILb1EEEvRKNS_3vec4AVX210VectorizedIfEESS_l.isra.0"
ADAM = f"{NATIVE}9adam_mathIffLNS0_9ADAM_MODEE0EEENSt9enable_ifIXoo9is_same_vIT_fEEvE4typeEPS5_S8_dPKfl"
NORMAL = "_ZNK2at6native9templates3cpu12_GLOBAL__N_112NormalFill16IfLb1EEclEPf.constprop.0"
SMALL_MATRICES = "_ZN2at6nativeL19bmm_out_or_baddbmm_ERKNS_6TensorES3_S3_RKN3c106ScalarES7_b"
CALLBACK = "_ZN3c1012function_refIFvPPcPKlllEE11callback_fnIZN2at18TensorIteratorBase15loop_2d_from_1d"
RUNNING_MAXIMUM = "_ZN2at6nativeL20cummax_cummin_helperIflSt13greater_equalIfEEEvPKT_PS4_PT0_iiii"
POOL3D = "_ZN2at12parallel_forIZNS_6native12_GLOBAL__N_120avg_pool3d_out_frameIfEEvPKT_PS4_lllllllii"
SPARSE_PRODUCT = "_ZN2at6nativeL31s_addmm_out_sparse_dense_workerIfEEvllllRNS_6TensorERKN3c106ScalarERKS2_S7_S9_S9_S9_"
SVE = "_ZN2at6native6SVE25611copy_kernelERNS_14TensorIteratorEb"


@pytest.mark.parametrize(
    ("image", "symbol", "kind"),
    [
        ("libpython3.11.so.1.0", "_PyEval_EvalFrameDefault", "interpreter"),
        ("python3.12", "", "interpreter"),
        ("libpython3.13t.so.1.0", "", "interpreter"),
        ("python_helpers.cpython-311-x86_64-linux-gnu.so", "", "library"),
        ("libtorchvision.so", "", "library"),
        ("[jit]", "", "kernel"),
        # As on the host of an H200: CUDA's libraries are stripped, and the C library's copies are chosen at run time.
        ("libcublasLt.so.13", "~", "dispatch"),
        ("libcudart.so.13", "~", "dispatch"),
        ("libc.so.6", "__sched_yield", "yield"),
        ("libtorch_cpu.so", "_ZGVeN8v_Sleef_exp_u10", "kernel"),
        ("libtorch_cpu.so", "mkl_blas_def_sgemm_kernel_0_zen", "kernel"),
        ("libtorch_cpu.so", "mkl_blas_avx512_sgemm_kernel_0", "kernel"),
        ("libtorch_cpu.so", "mkl_serv_lsame", "dispatch"),
        # Names that MKL's parts have without its prefix; lengths with large prime factors go through the second kind.
        ("libtorch_cpu.so", "prefetch_step_radix8_fwd", "kernel"),
        ("libtorch_cpu.so", "cDftFwd_StepPrimeFact", "kernel"),
        ("libtorch_cpu.so", "compute_mg_c2r", "kernel"),
        ("libtorch_cpu.so", "xcsr_gnxn_mv_def_ker", "kernel"),
        ("libtorch_cpu.so", "LN4_LOOPgas_1", "kernel"),
        ("libtorch_cpu.so", "dnnl_memory_create", "dispatch"),
        ("libtorch_cpu.so", "gammafk", "kernel"),
        ("libtorch_cpu.so", "_ZN12_GLOBAL__N_18calc_i0eIfEET_S1_", "kernel"),
        ("libtorch_cpu.so", "_Z10erfcx_y100IfENSt9enable_ifIX19is_floating_point_vIT_EES1_E4typeES1_", "kernel"),
        # One call for each number of a sparse matrix.
        ("libtorch_cpu.so", SPARSE_PRODUCT, "kernel"),
        ("libtorch_cpu.so", "_ZN2at6native16DispatchStubImpl16try_get_call_ptrEN3c1010DeviceTypeEPvS4_S4_", "kernel"),
        ("libtorch_cpu.so", RUNNING_MAXIMUM, "kernel"),
        ("libtorch_cpu.so", "_ZN2at6native4gemvIfEEvcllT_PKS2_lS4_lS2_PS2_l", "kernel"),
        ("libtorch_cpu.so", "_ZN2at6native12_GLOBAL__N_111median_implERKNS_6TensorEb", "kernel"),
        ("libtorch_cpu.so", POOL3D, "kernel"),
        ("libtorch_cpu.so", "_ZZN2at6native20_coalesce_sparse_cpuERKNS_6TensorEENKUlvE_clEv", "kernel"),
        ("libtorch_cpu.so", LOOP, "kernel"),
        # On a GPU the loop is the device's.
        ("libtorch_cuda.so", LOOP, "dispatch"),
        ("libtorch_cpu.so", ARM_LOOP, "kernel"),
        ("libtorch_cpu.so", SVE, "kernel"),
        ("libtorch_cpu.so", MAX_POOL, "kernel"),
        ("libtorch_cpu.so", BICUBIC, "kernel"),
        ("libtorch_cpu.so", TRIANGLE, "kernel"),
        ("libtorch_cpu.so", SORT, "kernel"),
        ("libtorch_cpu.so", TRANSPOSE, "kernel"),
        ("libtorch_cpu.so", GRID, "kernel"),
        ("libtorch_cpu.so", ADAM, "kernel"),
        ("libtorch_cpu.so", NORMAL, "kernel"),
        ("libtorch_cpu.so", SMALL_MATRICES, "kernel"),
        ("libtorch_cpu.so", f"{NATIVE}18pool2d_shape_checkERKNS_6TensorElllllllllNS_12MemoryFormatE", "dispatch"),
        ("libtorch_cpu.so", f"{NATIVE}10CellParamsD2Ev", "dispatch"),
        ("libtorch_cpu.so", "_ZN2at16CPUGeneratorImpl8random64Ev", "kernel"),
        ("libtorch_cpu.so", "_ZN8arm_gemm11GemmHybridIjjE7executeEv", "kernel"),
        ("libtorch_cpu.so", "sgemm_kernel_NEOVERSEN1", "kernel"),
        ("libtorch_cpu.so", "nnp_iwt8x8_3x3_with_offset_and_stream__avx2", "kernel"),
        ("libtorch_cpu.so", "compute_input_transform", "kernel"),
        ("libtorch_cpu.so", FOR_EACH, "dispatch"),
        ("libtorch_cpu.so", FOR_EACH_REDUCED, "kernel"),
        ("libtorch_cpu.so", "_ZN2at18TensorIteratorBaseC2ERKS0_", "kernel"),
        ("libtorch_cpu.so", "_ZN2at18TensorIteratorBase5buildERNS_20TensorIteratorConfigE", "dispatch"),
        ("libtorch_cpu.so", RECORDED, "dispatch"),
        ("libtorch_cpu.so", LOOKUP, "dispatch"),
        ("libtorch_cpu.so", FUNCTOR, "dispatch"),
        ("libtorch_cpu.so", "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE", "dispatch"),
        ("libtorch_cpu.so", "dnnl_convolution_backward_weights_primitive_desc_create", "dispatch"),
        ("libtorch_cpu.so", "~", "kernel"),
        ("libtorch_cpu.so", "~_ZNK3c104impl13OperatorEntry6lookupENS_14DispatchKeySetE", "dispatch"),
        ("libtorch_cpu.so", "~stub", "dispatch"),
        ("libtorch_cpu.so", "", "other"),
        ("libtorch_python.so", "_ZN5torch17FunctionSignature5parseEP7_object", "dispatch"),
        ("libtorch_cpu.so", f"{CALLBACK}IZNS8_12_GLOBAL__N_19ne_kernelERS5_EUlffE_EEvS6_OT_lbEUlPPcPKlllE_E", "check"),
        ("libtorch_cpu.so", "_ZN2at6native4AVX220vectorized_reductionIZNS0_12_GLOBAL__N_114or_kernel_implE", "check"),
        ("libc10.so", "_ZN3c1010TensorImplD1Ev", "dispatch"),
        ("libc.so.6", "malloc", "dispatch"),
        ("libc.so.6", "~__libc_malloc", "dispatch"),
        ("libc.so.6", "", "dispatch"),
        ("libc.so.6", "~", "copy"),
        ("libc.so.6", "__memmove_avx_unaligned_erms", "copy"),
        ("libm.so.6", "expf", "kernel"),
        ("libstdc++.so.6.0.30", "_Znwm", "dispatch"),
        ("ld-linux-x86-64.so.2", "__tls_get_addr", "dispatch"),
        ("ld-linux-aarch64.so.1", "_dl_tlsdesc_return", "dispatch"),
        ("libgomp.so.1", "gomp_team_barrier_wait_end", "spin"),
        ("libgomp-a34b3233.so.1.0.0", "", "spin"),
        ("libiomp5.so", "__kmp_flag_64", "spin"),
        ("libmkl_avx512.so.2", "", "kernel"),
        ("libopenblas.so.0", "sgemm_kernel", "kernel"),
        ("libscipy_openblas64_-99b71e71.so", "sgemm_kernel", "library"),
        ("_imaging.cpython-311-x86_64-linux-gnu.so", "bilinear_filter32RGB", "library"),
        ("libjpeg-6dc8d115.so.62.4.0", "", "library"),
        ("_multiarray_umath.cpython-311-x86_64-linux-gnu.so", "FLOAT_divide_X86_V3", "library"),
        ("libz.so.1", "inflate", "library"),
        ("libcudart.so.12", "cudaLaunchKernel", "dispatch"),
        ("libcuda.so.550.54", "", "driver"),
        ("[vdso]", "", "clock"),
    ],
)
def test_classify(image: str, symbol: str, kind: str) -> None:
    assert classify(image, symbol) == kind


@pytest.mark.parametrize(
    ("symbol", "without"),
    [
        ("_ZN2at6nativeL6im2colIfEEvPKT_lllllllllllllPS2_b", True),
        ("_ZZZN2at6native12_GLOBAL__N_134slow_conv_dilated_all_cpu_templateILl2EEEvRKNS_6TensorE", True),
        ("nnp_owt8x8_3x3__avx2", True),
        ("_ZN4dnnl4impl3cpu26jit_gemm_convolution_utils6im2colIfEEvRKNS1_16conv_gemm_conf_tEPKT_PS7_llll", False),
        ("mkl_blas_avx512_sgemm_kernel_0", False),
    ],
)
def test_convolutions_that_onednn_does_not_do(symbol: str, without: bool) -> None:
    assert is_without_onednn(symbol) is without


def test_what_reductions_set_up_for_each_number_is_known() -> None:
    assert reduces_by_number(FOR_EACH_REDUCED)
    assert not reduces_by_number(FOR_EACH)
    assert walks(FOR_EACH)


@pytest.mark.parametrize(
    ("symbol", "traces"),
    [
        ("tracemalloc_free", True),
        ("hashtable_compare_traceback", True),
        ("_PyTraceMalloc_GetTraceback", True),
        ("PyTraceBack_Here", False),
        ("_Py_hashtable_get_entry_ptr", False),
    ],
)
def test_what_tracemalloc_does(symbol: str, traces: bool) -> None:
    assert traces_memory(symbol) is traces


@pytest.mark.parametrize(
    ("symbol", "by_convolution"),
    [
        ("mkl_dft_avx512_ippsMul_32fc_I", True),
        ("mkl_dft_avx512_ownsrDftFwd_Conv_32f", True),
        ("mkl_dft_avx2_ownscDft_Conv_64fc", True),
        ("mkl_dft_avx512_ownscDftInv_Prime5_32fc", False),
        ("noprefetch_step_fft16_norm_inv_c", False),
        ("_ZNK9pocketfft6detail7fftblueIfE3fftILb1EfEEvPNS0_5cmplxIT0_EEf", True),
        ("_ZNK9pocketfft6detail5cfftpIfE5pass4ILb1EfEEvmmPKNS0_5cmplxIT0_EEPS6_PKNS4_IfEE", False),
    ],
)
def test_ffts_that_are_made_out_of_a_convolution(symbol: str, by_convolution: bool) -> None:
    assert (classify("libtorch_cpu.so", symbol), is_fft(symbol)) == ("kernel", True)
    assert is_by_convolution(symbol) is by_convolution


def test_mkl_s_code_for_the_same_results_on_all_cpus_is_known() -> None:
    assert is_compatible("mkl_blas_cnr_def_sgemm_copyan")
    assert not is_compatible("mkl_blas_avx512_sgemm_kernel_nocopy_NT_b1")


@pytest.mark.parametrize(
    ("image", "symbol", "expected"),
    [
        ("libtorch_cpu.so", "mkl_blas_avx512_sgemm_kernel_0_b0", True),
        ("libtorch_cpu.so", "~mkl_blas_avx512_sgemm_kernel_0_b0", True),
        ("libtorch_cpu.so", "prefetch_step_radix8_fwd", True),
        ("libtorch_cpu.so", "_ZN4dnnl4impl3cpu3x6410brgemm_kernel_execute", True),
        ("libopenblas.so.0", "~", True),
        ("[jit]", "", True),
        ("libtorch_cpu.so", "mkl_vml_kernel_sExp_Z0HAynn", False),
        ("libmkl_vml_avx512.so.2", "~", False),
        ("libtorch_cpu.so", LOOP, False),
        ("libtorch_cpu.so", SORT, False),
        ("libtorch_cpu.so", ADAM, False),
        ("libtorch_cpu.so", f"{NATIVE}12index_kernelERNS_14TensorIteratorBaseE", False),
        ("libc.so.6", "__memmove_avx512_unaligned_erms", False),
    ],
)
def test_what_multiplies_is_told_from_what_goes_over_whole_tensors(image: str, symbol: str, expected: bool) -> None:
    assert multiplies(image, symbol) is expected
