"""What kind of work an instruction belongs to: arithmetic, or interpreter and dispatch around it.

Rules look at names of library files and of functions in them, never at names of the user's job. Kernels are
recognised by how PyTorch and the mathematical libraries build them: copies per instruction set in a
namespace of that name (aten/src/ATen/native/cpu/README.md), loops over strided data with one signature
(``TensorIteratorBase::loop2d_t``), routine names of BLAS, LAPACK, oneDNN and their like. Everything else in
PyTorch's libraries is bookkeeping.

Where a file has no name for a function, ``probes.elf`` gives ``~neighbour`` for code close to a named
function and ``~`` for code far from any. Stripped mathematical code is large and exports little,
bookkeeping is small and exports much.
"""

import re
from functools import lru_cache
from typing import Literal

CodeKind = Literal["interpreter", "dispatch", "kernel", "spin", "library", "other"]

_INTERPRETER = re.compile(r"(lib)?(python|pypy)[\d.]*[a-z]?(-c)?(\.so.*)?$")
_SPIN = re.compile(r"lib(gomp|iomp5|omp)\b")
_TORCH = re.compile(r"lib(torch(?!vision|audio|text)|c10|shm\b|caffe2|aoti)|torch_|_C\.cpython|functorch")
# Libraries that only do arithmetic. The BLAS that numpy brings (libscipy_openblas) is not among them.
_ARITHMETIC = re.compile(
    r"lib(mkl|openblas|blas|cblas|lapack|blis|armpl|arm_compute|dnnl|mkldnn|xnnpack|fbgemm|sleef|mvec|"
    r"m(\.|-)|nvpl|acl)"
)
# Code under all of the others: the C and C++ libraries, the loader, allocators, the ways to launch on a GPU.
_PLUMBING = re.compile(
    r"lib(c|stdc\+\+|gcc_s|pthread|dl|rt|tcmalloc\w*|jemalloc|mimalloc|"
    r"cudart|cublas\w*|cudnn\w*|nccl|cufft|cusparse|hip\w*|amdhip64|rocblas|MIOpen)"
    r"(\.|-|_|$)|ld-(linux|musl)|ld64\.so"
)
_DRIVER = re.compile(r"libcuda\.so|libhsa-runtime|libnvidia|\[v")
_COPY = re.compile(r"_*(memcpy|memmove|memset|memcmp|mempcpy|memchr|bcopy)|__memmove|__memset")

# Bookkeeping whose names would otherwise look like kernels.
_BOOKKEEPING = re.compile(
    r"wrap_kernel_functor|KernelFunction|BoxedKernel|DispatchStub|mkl_serv_|primitive_hashing|primitive_desc|"
    r"primitive_cache|_primitive_desc_create|dnnl_query|5ideep"
)
_KERNEL = re.compile(
    # TensorIterator's inner loops, and copies built per instruction set (x86, Arm, POWER, s390x)
    r"FvPPcPKl+E+11callback_fn|6native.*vPPcPKll|2at3vec|3vec\d+[A-Z]|"
    r"6native\d*(AVX2|AVX512|AVX10|DEFAULT|SVE\d*|NEON|VSX|ZVECTOR|RVV)"
    # ATen's kernels: cpu_max_pool, batch_norm_cpu_kernel, softmax_lastdim_kernel …
    r"|6native.*([Kk]ernel|[a-z\d_]cpu[_E]|\d+cpu_|_omp_fn|vectorized_|cascade_sum|im2col|col2im|vol2col|slow_conv|"
    r"7cpublas|gemm|sparse_?mm|embedding_bag|max_pool1d_impl|"
    # with the loops for small matrices compiled into it
    r"bmm_out_or_baddbmm_)|copy_same_type_transpose_"
    # bodies of at::parallel_for, and the standard library's sorting of tensors
    r"|2at6native.*UlllE\d*_clEll|^_ZSt\d+__\w+2at6native"
    # random numbers, FFT, elementary functions
    r"|7mt19937|CPUGeneratorImpl|pocketfft|^Sleef_|^mkl_|^MKL_|^mkl$"
    # BLAS and LAPACK under their several spellings
    r"|(^|_|\d)(cblas_|lapack_)?[sdczh]b?(gemm|gemv|symm|syrk|trsm|trmm|axpy|scal|dot|ger)[a-z_\d]*"
    # oneDNN, Arm Compute Library, FBGEMM, XNNPACK, QNNPACK, NNPACK, KleidiAI
    r"|dnnl4impl3cpu|dnnl_[sd]gemm|8arm_gemm|11arm_compute|6fbgemm|^xnn_|^pytorch_q?8?|^q8gemm|^nnp_|^kai_|"
    r"5Eigen"
    # code that torch.compile generates
    r"|^cpp_fused|^kernel$|^triton_"
)


# In files of ATen's operators, what takes no tensor, but pointers and lengths, works on elements.
_ON_ELEMENTS = re.compile(
    r"^_ZNK?2at6native\w*12_GLOBAL__N_1(?!\w*("
    r"6Tensor(?!Accessor)|10TensorBase|8ArrayRef|St8optional|6Scalar|10ScalarType|6Device|"
    r"7Library|Params|13intrusive_ptr|D[012]Ev$))"
)


@lru_cache(maxsize=100_000)
def classify(image: str, symbol: str) -> CodeKind:
    """Tells what kind of work is done in a function.

    Args:
        image: base name of the mapped file, or ``[jit]``, as in ``CodeSample``.
        symbol: mangled name, ``~neighbour`` or ``~`` where it has none, "" where nothing is known.

    Returns:
        ``interpreter`` (CPython), ``dispatch`` (finding, checking and recording operators, allocating),
        ``kernel`` (arithmetic and memory traffic on tensors), ``spin`` (an OpenMP runtime, where threads
        wait for each other), ``library`` (any other library's own work: decoding, augmenting), ``other`` (a
        device's driver, which may launch as well as wait, and the kernel's shared page).
    """
    base = image.rpartition("/")[2]
    if base == "[jit]" or _ARITHMETIC.match(base):
        return "kernel"
    if _INTERPRETER.match(base):
        return "interpreter"
    if _SPIN.match(base):
        return "spin"
    if _DRIVER.match(base):
        return "other"
    if _PLUMBING.match(base):
        return "kernel" if symbol == "~" or _COPY.match(symbol) else "dispatch"
    if _TORCH.match(base):
        return _in_torch(symbol)
    return "kernel" if _KERNEL_OUTSIDE.match(symbol) else "library"


_KERNEL_OUTSIDE = re.compile(r"cpp_fused|kernel$|triton_")


def _in_torch(symbol: str) -> CodeKind:
    if not symbol:
        return "other"
    if symbol.startswith("~"):
        return "kernel" if symbol == "~" else _in_torch(symbol[1:])
    if _BOOKKEEPING.search(symbol):
        return "dispatch"
    return "kernel" if _KERNEL.search(symbol) or _ON_ELEMENTS.search(symbol) else "dispatch"
