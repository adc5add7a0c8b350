"""What kind of work an instruction belongs to: arithmetic, or interpreter and dispatch around it.

The tables go by names of library files and of functions in them, never at names of the user's job. Kernels are
recognised by how PyTorch and the mathematical libraries build them: copies per instruction set in a
namespace of that name (aten/src/ATen/native/cpu/README.md), loops over strided data with one signature
(``TensorIteratorBase::loop2d_t``), routine names of BLAS, LAPACK, oneDNN and their like. Everything else in
PyTorch's libraries is bookkeeping. Functions have their mangled names: ``6native`` is the namespace ``native``.

Where a file has no name for a function, ``probes.readers.elf`` gives ``~neighbour`` for code close to a named
function and ``~`` for code far from any. Stripped mathematical code is large and exports little,
bookkeeping is small and exports much.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

CodeKind = Literal[
    "interpreter", "dispatch", "kernel", "check", "copy", "spin", "library", "driver", "driver without clock", "clock",
    "yield",
    "other",
]  # fmt: skip
# Code of a GPU's driver.
DRIVERS: tuple[CodeKind, ...] = ("driver", "driver without clock")


def _any_of(table: Mapping[str, str], before: str = "", after: str = "") -> re.Pattern[str]:
    """Matches any of a table's expressions, between what stands before and after all of them."""
    return re.compile(f"{before}(?:{'|'.join(table)}){after}")


# --- files, by the beginning of their base names --------------------------------------------------------------------

_INTERPRETER = re.compile(r"(lib)?(python|pypy)[\d.]*[a-z]?(-c)?(\.so.*)?$")
# OpenMP runtimes: a pool's threads spin in them at its barriers.
_SPIN = _any_of({"gomp": "GCC's", "iomp5": "Intel's, also under this name in PyTorch", "omp": "LLVM's"}, "lib", r"\b")
# PyTorch, but not the packages of its family, which decode and augment.
_TORCH = _any_of(
    {
        r"libtorch(?!vision|audio|text)": "ATen, autograd, bindings: libtorch_cpu, libtorch_cuda, libtorch_python …",
        "libc10": "tensors' and allocators' core",
        r"libshm\b": "tensors in shared memory",
        "libcaffe2": "in versions before 2",
        "libaoti": "models compiled ahead of time",
        "torch_": "torch_shm_manager …",
        r"_C\.cpython": "torch._C",
        "functorch": "torch.func",
    }
)
# PyTorch's operators on a GPU: their arithmetic is done there, and what the host runs of them prepares and launches it.
_LAUNCHES = re.compile(r"libtorch_(cuda|hip)\b")
# Libraries that only do arithmetic. The BLAS that numpy brings (libscipy_openblas) is not among them.
_ARITHMETIC = _any_of(
    {
        "mkl": "Intel MKL",
        "openblas": "OpenBLAS",
        "blas": "the reference BLAS",
        "cblas": "its C interface",
        "lapack": "LAPACK",
        "blis": "BLIS, AMD's AOCL",
        "armpl": "Arm Performance Libraries",
        "arm_compute": "Arm Compute Library",
        "acl": "the same",
        "nvpl": "NVIDIA Performance Libraries for Arm",
        "dnnl": "oneDNN",
        "mkldnn": "oneDNN's former name",
        "xnnpack": "XNNPACK",
        "fbgemm": "FBGEMM",
        "sleef": "SLEEF, vectors of elementary functions",
        "mvec": "glibc's vectors of elementary functions",
        r"m(?:\.|-)": "glibc's elementary functions, libm.so.6",
    },
    "lib",
)
# Optimizers that DeepSpeed and its like compile for the CPU.
_UPDATES = re.compile(r"cpu_(?:adam|adagrad|lion)\w*\.so")
# Code under all of the others.
_PLUMBING = _any_of(
    {
        r"lib(?:c|gcc_s|pthread|dl|rt)(?:\.|-|_|$)": "the C library",
        r"libstdc\+\+(?:\.|-|_|$)": "the C++ library",
        r"lib(?:tcmalloc\w*|jemalloc|mimalloc)(?:\.|-|_|$)": "allocators",
        r"ld-(?:linux|musl)|ld64\.so": "the dynamic loader",
    }
)
# What launches on GPUs. These files are stripped: code without a name in them is none of the C library's copies.
_GPU_LIBRARIES = _any_of(
    {
        r"lib(?:cudart|cublas\w*|cudnn\w*|nccl|cufft|cusparse|nvrtc|cufile)(?:\.|-|_|$)": "NVIDIA's",
        r"lib(?:hip\w*|amdhip64|rocblas|MIOpen)(?:\.|-|_|$)": "AMD's",
    }
)
_DRIVER = re.compile(r"libcuda\.so|libnvidia")
# Whoever waits for a GPU of NVIDIA's asks for the time again and again meanwhile, which takes no system call. AMD's
# runtime reads the processor's counter instead.
_DRIVER_WITHOUT_CLOCK = re.compile("libhsa-runtime")
_CLOCK = re.compile(r"\[v")

# --- functions ------------------------------------------------------------------------------------------------------

# In plumbing: memory traffic on tensors.
_COPY = re.compile(r"_*(memcpy|memmove|memset|memcmp|mempcpy|memchr|bcopy)|__memmove|__memset")
# Whoever waits awake, and lets others have the core meanwhile.
_YIELD = re.compile(r"_*sched_yield$")
# In PyTorch: bookkeeping whose names would otherwise look like kernels.
_BOOKKEEPING = _any_of(
    {
        "wrap_kernel_functor|KernelFunction|BoxedKernel": "PyTorch's dispatcher",
        "mkl_serv_": "MKL's threads and settings",
        "primitive_hashing|primitive_desc|primitive_cache|_primitive_desc_create|dnnl_query": "oneDNN's set-up",
        "5ideep": "PyTorch's wrapper of oneDNN",
    }
)
_FFT = _any_of(
    {
        "pocketfft": "PyTorch's without MKL",
        r"^\w*(?:DFT|Dft|FFT|Fft)(?:Fwd|Inv|fwd|inv|_)|^STEP_RADIX|^(?:no)?(?:prefetch_)?step_": "MKL's",
        r"^pointwise_f|^bluestein_|^compute_(?:\w*[cr]2[cr]|\w+_bluestein_)": "its parts for other lengths",
        r"^mkl_dft_": "its steps in all of these",
    }
)
# Of these, what makes an FFT of a length with a large factor out of a convolution, whose own FFTs are longer: in MKL,
# and in pocketfft (third_party/pocketfft/pocketfft_hdronly.h, fftblue).
_BY_CONVOLUTION = re.compile(r"^mkl_dft_\w+_(?:\w*Conv_\d+|ipps(?:Mul|Zero)_)|^pointwise_f|bluestein|fftblue")
# What of MKL gives the same results on all CPUs, with vectors of 128 bits (MKL_CBWR=COMPATIBLE).
_COMPATIBLE = re.compile(r"^mkl_\w+_cnr_def_")
# In PyTorch: products of matrices, convolutions and FFTs, ATen's own and those of libraries linked into it.
_PRODUCTS: Mapping[str, str] = {
    r"6native.*(?:7cpublas|gemm|bmm_out_or_baddbmm_)": "ATen's matrix products, loops for small ones compiled in",
    _FFT.pattern: "FFTs",
    r"dnnl4impl3cpu|dnnl_[sd]gemm": "oneDNN",
    "8arm_gemm|11arm_compute|^kai_": "Arm Compute Library, KleidiAI",
    "6fbgemm": "FBGEMM",
    "^xnn_|^pytorch_q?8?|^q8gemm|^nnp_": "XNNPACK, QNNPACK, NNPACK",
    r"^compute_(?:kernel|input|output)_(?:transform|packing)": "NNPACK's parts of a convolution",
    "^compute_(?:tuple|matrix)_multiplication|^compute_direct_convolution": "the same",
    "5Eigen": "Eigen",
}
# In PyTorch: arithmetic, its own and that of the libraries linked into it.
_KERNEL = _any_of(
    {
        r"FvPPcPKl+E+11callback_fn|6native.*vPPcPKll": "TensorIterator's inner loops",
        r"TensorIteratorBase(?:C[12]ERKS0_|19foreach_reduced_elt|22select_all_keeping_dim)": "reductions, by number",
        r"2at3vec|3vec\d+[A-Z]": "at::vec, vectors of a CPU",
        r"6native\d*(?:AVX2|AVX512|AVX10|DEFAULT|SVE\d*|NEON|VSX|ZVECTOR|RVV)": "copies per instruction set",
        r"6native.*(?:[Kk]ernel|[a-z\d_]cpu[_E]|\d+cpu_|_omp_fn|vectorized_|cascade_sum)": "ATen's kernels by name",
        r"6native.*(?:im2col|col2im|vol2col|slow_conv|sparse_?mm|embedding_bag|max_pool1d_impl)": "ATen's others",
        "copy_same_type_transpose_": "ATen's transposing copy",
        # Once in an operation this is hardly seen: 1 % of a job that does nothing but call operations, at most.
        "16DispatchStubImpl": "how an operation finds its loop; a sparse product does for each number",
        r"2at6native.*UlllE\d*_clEll|2at12parallel_forIZ": "bodies of at::parallel_for",
        r"^_ZZ+NK?2at6native.*UlvE\d*_clEv": "loops of an operator, for one type of numbers (AT_DISPATCH)",
        r"^_ZN2at6nativeL?\d\w*I\w+?EEv(?!\w*(?:6Tensor|10TensorBase|8ArrayRef))\w*PK?[TSfdlh]": "those by pointers",
        r"6native\w*(?:11median_impl|9get_poolsER|(?:sparse|dense)_worker)": "ATen's loops over what takes tensors",
        r"^_ZN?L?(?:12_GLOBAL__N_1)?\d+(?:calc_|erfcx)\w*I[fd]|^gammaf?k$": "elementary functions, ATen's and SLEEF's",
        r"^_ZSt\d+__\w+2at6native": "the standard library's sorting of tensors",
        "7mt19937|CPUGeneratorImpl": "random numbers",
        r"^(?:_ZGV[a-z][MN]\d+v+_)?Sleef_": "elementary functions, some by the names that vector functions have",
        r"^mkl_|^MKL_|^mkl$|^v[sd]\w+_cout_rare$": "MKL",
        r"^x(?:csr|bsr)_|^xblock_": "MKL's products of sparse matrices",
        r"^L\w*gas_\d+$|^[a-z]\w*\._omp_fn\.\d+$": "MKL's assembly, and bodies of its parallel loops",
        r"(?:^|_|\d)(?:cblas_|lapack_)?[sdczh]b?(?:gemm|gemv|symm|syrk|trsm|trmm|axpy|scal|dot|ger)[a-z_\d]*": "BLAS",
        **_PRODUCTS,
        "^cpp_fused|^kernel$|^triton_": "code that torch.compile generates",
    }
)
# Of these, what multiplies matrices, convolves or transforms: each number that it reads is used many times. All other
# arithmetic goes over whole tensors, and is as fast as memory is.
_MULTIPLIES = _any_of(
    {
        r"^mkl_(?!vml)|^MKL_|^L\w*gas_\d+$": "MKL's, but for vectors of elementary functions",
        r"(?:^|_|\d)(?:cblas_|lapack_)?[sdczh]b?(?:gemm|gemv|symm|syrk|trsm|trmm|ger)[a-z_\d]*": "BLAS",
        r"6native.*(?:im2col|col2im|vol2col|slow_conv|unfolded[23]d|conv_depthwise|sparse_?mm)": "ATen's",
        **_PRODUCTS,
    }
)
# Libraries with nothing but products.
_OF_PRODUCTS = _any_of({"(?:open|c|ref)?blas|mkl_(?!vml)|lapack|blis|dnnl|mkldnn|xnnpack|fbgemm": "BLAS …"}, "lib")
# Of these, what finds out whether a tensor has a NaN: it is compared with itself, and whether any element differs
# (aten/src/ATen/native/TensorCompare.cpp, isnan; torch/csrc/autograd/engine.cpp, AnomalyMode).
_CHECK = re.compile(r"\dne_kernel|\dor_kernel_impl")
# What a reduction sets up anew for each number that it puts out, where it has no vectors of a CPU for that: an iterator
# (aten/src/ATen/TensorIterator.cpp, foreach_reduced_elt; aten/src/ATen/native/cpu/Reduce.h, binary_kernel_reduce).
_BY_NUMBER = re.compile(r"TensorIteratorBase(?:C[12]ERKS0_|19foreach_reduced_elt|22select_all_keeping_dim)")
# What goes over a tensor's elements: once in an operation, and once for each number in such a reduction.
_WALKS = re.compile(r"TensorIteratorBase15serial_for_each|8internal15serial_for_each|2at10DimCounter")
# What fills a tensor with one number, and what adds two (aten/src/ATen/native/cpu/FillKernel.cpp, BinaryOpsKernel.cpp).
_FILLS, _ADDS = re.compile("11fill_kernel"), re.compile("10add_kernel")
# In the interpreter: tracemalloc, which notes down where each allocation was asked for, and what it calls for that
# (Modules/_tracemalloc.c, Python/tracemalloc.c, Objects/codeobject.c).
_TRACES_MEMORY = re.compile(r"^_?(?:PyT|t)race[Mm]alloc|^hashtable_\w+_traceback$|^traceback_(?:new|hash|get_frames)$")
_LOOKS_LINE_UP = re.compile("^_PyCode_CheckLineNumber$|^PyCode_Addr2Line$|^_Py_hashtable_get_entry")
# Code that lays a convolution out window by window for BLAS, as ATen does with what oneDNN has no kernels for.
_UNFOLDS = _any_of(
    {
        r"unfolded[23]d_(?:copy|acc)": "convolutions in two dimensions, or one",
        r"(?:im|vol)2col|col2(?:im|vol)": "dilated and transposed ones, and those in three",
    }
)
# Convolutions that oneDNN does not do: on x86-64, in single precision, it does all, unless it is switched off
# (aten/src/ATen/native/Convolution.cpp, use_mkldnn; tried with 11 kinds of convolutions, torch 2.13).
_WITHOUT_ONEDNN = _any_of(
    {
        rf"2at6native\w*(?:slow_conv|{_UNFOLDS.pattern})": "ATen's own",
        "^nnp_|^compute_(?:kernel|input|output)_(?:transform|packing)": "NNPACK's",
    }
)
# Of how many bits the numbers are that a kernel works on, as far as its name says so.
_OF_64_BITS = _any_of(
    {
        r"(?:^|_)(?:cblas_)?[dz](?:gemm|gemv|symm|syrk|trsm|trmm|axpy|scal|dot|ger)": "BLAS and MKL's parts of it",
        r"10VectorizedIdE|EUld+E": "at::vec's vectors, and the functions of loops over elements",
        f"{_UNFOLDS.pattern}IdE": "windows of convolutions, laid out for BLAS",
        r"mkl_vml_kernel_d[A-Z]|Sleef_\w+d\d+_u": "vectors of elementary functions",
    }
)
_OF_32_BITS = _any_of(
    {
        r"(?:^|_)(?:cblas_)?[sc](?:gemm|gemv|symm|syrk|trsm|trmm|axpy|scal|dot|ger)": "BLAS and MKL's parts of it",
        r"10VectorizedIfE|EUlf+E": "at::vec's vectors, and the functions of loops over elements",
        f"{_UNFOLDS.pattern}IfE": "windows of convolutions, laid out for BLAS",
        r"mkl_vml_kernel_s[A-Z]|Sleef_\w+f\d+_u": "vectors of elementary functions",
        r"dnnl": "oneDNN, which knows no wider ones",
    }
)
# Anywhere else: code that torch.compile generates.
_KERNEL_OUTSIDE = re.compile(r"cpp_fused|kernel$|triton_")
# In files of ATen's operators, what takes no tensor, but pointers and lengths, works on elements.
_ON_ELEMENTS = re.compile(
    r"^_ZNK?2at6native\w*12_GLOBAL__N_1(?!\w*("
    r"6Tensor(?!Accessor)|10TensorBase|8ArrayRef|St8optional|6Scalar|10ScalarType|6Device|"
    r"7Library|Params|13intrusive_ptr|D[012]Ev$))"
)


@lru_cache(maxsize=100_000)
def classify(image: str, symbol: str) -> CodeKind:
    """Determines what kind of work is done in a function.

    Args:
        image: base name of the mapped file, or ``[jit]``, as in ``CodeSample``.
        symbol: mangled name, ``~neighbour`` or ``~`` where it has none, "" where nothing is known.

    Returns:
        ``interpreter`` (CPython), ``dispatch`` (finding, checking and recording operators, allocating), ``kernel``
        (arithmetic and memory traffic on tensors), ``check`` (of that, what looks for NaN, among others), ``copy``
        (memory traffic of the C library), ``spin`` (an OpenMP runtime, where threads wait for each other), ``library``
        (any other library's own work: decoding, augmenting), ``driver`` (of a GPU, which may launch as well as wait),
        ``driver without clock`` (one that does not ask for the time while it waits), ``clock`` (the kernel's shared
        page), ``yield`` (of a core, while it waits), ``other``.
    """
    base = image.rpartition("/")[2]
    if base == "[jit]" or _ARITHMETIC.match(base) or _UPDATES.match(base):
        return "kernel"
    if _INTERPRETER.match(base):
        return "interpreter"
    if _SPIN.match(base):
        return "spin"
    if _DRIVER.match(base):
        return "driver"
    if _DRIVER_WITHOUT_CLOCK.match(base):
        return "driver without clock"
    if _CLOCK.match(base):
        return "clock"
    if _PLUMBING.match(base):
        if _YIELD.match(symbol):
            return "yield"
        return "copy" if symbol == "~" or _COPY.match(symbol) else "dispatch"
    if _GPU_LIBRARIES.match(base) or _LAUNCHES.match(base):
        return "dispatch"
    if _TORCH.match(base):
        return _in_torch(symbol)
    return "kernel" if _KERNEL_OUTSIDE.match(symbol) else "library"


def multiplies(image: str, symbol: str) -> bool:
    """Whether arithmetic is of matrix products, convolutions or FFTs; what is compiled while a job runs mostly is.

    Args:
        image: as of ``classify``.
        symbol: likewise, of a function that is arithmetic.
    """
    base = image.rpartition("/")[2]
    return (
        base == "[jit]"
        or _OF_PRODUCTS.match(base) is not None
        or _MULTIPLIES.search(symbol.removeprefix("~")) is not None
    )


def is_torch(image: str) -> bool:
    """Whether a mapped file, as of ``classify``, is one of PyTorch's own libraries."""
    return _TORCH.match(image.rpartition("/")[2]) is not None


def bits(image: str, symbol: str) -> int | None:
    """Of how many bits the numbers are that a kernel works on, 64 or 32; None where its name does not say.

    What is compiled while a job runs is mostly oneDNN's, which has no kernels for wider ones.

    Args:
        image: as of ``classify``.
        symbol: likewise.
    """
    if image == "[jit]":
        return 32
    if _OF_64_BITS.search(symbol):
        return 64
    return 32 if _OF_32_BITS.search(symbol) else None


def is_without_onednn(symbol: str) -> bool:
    """Whether code is of a convolution that oneDNN, which is several times as fast, was not asked for."""
    return _WITHOUT_ONEDNN.search(symbol) is not None


def fills(symbol: str) -> bool:
    """Whether a kernel fills memory with one number."""
    return _FILLS.search(symbol) is not None


def adds(symbol: str) -> bool:
    """Whether a kernel adds tensors."""
    return _ADDS.search(symbol) is not None


def traces_memory(symbol: str) -> bool:
    """Whether code is of tracemalloc."""
    return _TRACES_MEMORY.search(symbol) is not None


def looks_line_up(symbol: str) -> bool:
    """Whether code finds out which line a frame is at, as tracemalloc has done again and again."""
    return _LOOKS_LINE_UP.search(symbol) is not None


def unfolds(symbol: str) -> bool:
    """Whether a kernel lays windows of a convolution out for BLAS."""
    return _UNFOLDS.search(symbol) is not None


def is_compatible(symbol: str) -> bool:
    """Whether code is of MKL's that gives the same results on all CPUs."""
    return _COMPATIBLE.search(symbol) is not None


def is_fft(symbol: str) -> bool:
    """Whether code is a part of an FFT."""
    return _FFT.search(symbol) is not None


def is_by_convolution(symbol: str) -> bool:
    """Whether code is of an FFT that is made out of a convolution."""
    return _BY_CONVOLUTION.search(symbol) is not None


def reduces_by_number(symbol: str) -> bool:
    """Whether code sets up what a reduction needs for one number that it puts out."""
    return _BY_NUMBER.search(symbol) is not None


def walks(symbol: str) -> bool:
    """Whether code begins to go over a tensor's elements, which is arithmetic where a reduction does so by number."""
    return _WALKS.search(symbol) is not None


def _in_torch(symbol: str) -> CodeKind:
    if not symbol:
        return "other"
    if symbol.startswith("~"):
        return "kernel" if symbol == "~" else _in_torch(symbol[1:])
    if _BOOKKEEPING.search(symbol):
        return "dispatch"
    if not (_KERNEL.search(symbol) or _ON_ELEMENTS.search(symbol)):
        return "dispatch"
    return "check" if _CHECK.search(symbol) else "kernel"
