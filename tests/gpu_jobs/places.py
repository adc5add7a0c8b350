"""Where threads of a CUDA training job are: their Python stacks, and the machine code under them.

Line numbers and names are those of PyTorch 2.13 and CPython 3.11, except in the job's own file. Machine code is told by
image and function as the code probe records them: of libraries that are stripped it gets only exported names near by,
and of the vdso none. Sources are in docs/gpu-simulator.md.
"""

from typing import NamedTuple

_SITE = "/opt/venv/lib/python3.11/site-packages/"
_TORCH = _SITE + "torch/"
_STDLIB = "/usr/lib/python3.11/"
OWN = "/home/user/job/main.py"


class Frame(NamedTuple):
    """A call, as py-spy names it."""

    file: str
    name: str
    line: int


Stack = tuple[Frame, ...]
# Weight, image and mangled name; an empty name where the probe finds none.
Code = tuple[tuple[float, str, str], ...]


def torch(file: str, name: str, line: int) -> Frame:
    return Frame(_TORCH + file, name, line)


def stdlib(file: str, name: str, line: int) -> Frame:
    return Frame(_STDLIB + file, name, line)


def own(name: str, line: int) -> Frame:
    return Frame(OWN, name, line)


def site(file: str, name: str, line: int) -> Frame:
    return Frame(_SITE + file, name, line)


_MAIN = (own("<module>", 180), own("main", 171))
LOOP = (*_MAIN, own("train", 120))


def at(line: int) -> Stack:
    """A line of the training loop."""
    return (*_MAIN, own("train", line))


_CALL = (
    torch("nn/modules/module.py", "Module._wrapped_call_impl", 1778),
    torch("nn/modules/module.py", "Module._call_impl", 1789),
)
DDP = (
    *_CALL,
    torch("nn/parallel/distributed.py", "DistributedDataParallel.forward", 1890),
    torch("nn/parallel/distributed.py", "DistributedDataParallel._run_ddp_forward", 1715),
)


def _layer(*inner: Frame) -> Stack:
    return (*_CALL, own("Model.forward", 61), *_CALL, own("Block.forward", 40), *_CALL, *inner)


_LAYERS = (
    _layer(torch("nn/modules/linear.py", "Linear.forward", 134)),
    _layer(torch("nn/modules/linear.py", "Linear.forward", 134)),
    _layer(
        torch("nn/modules/normalization.py", "LayerNorm.forward", 229),
        torch("nn/functional.py", "layer_norm", 2935),
    ),
    _layer(torch("nn/modules/activation.py", "GELU.forward", 840)),
    _layer(own("Attention.forward", 28)),
    (*_CALL, own("Model.forward", 61), *_CALL, own("Block.forward", 42)),
)


def forward(ddp: bool) -> tuple[Stack, ...]:
    return tuple((*at(124), *(DDP if ddp else ()), *layer) for layer in _LAYERS)


def in_layer(ddp: bool, *frames: Frame) -> Stack:
    """Inside a block of the model."""
    return (*at(124), *(DDP if ddp else ()), *_CALL, own("Model.forward", 61), *_CALL, *frames)


LOSS = (
    (
        *at(125),
        *_CALL,
        torch("nn/modules/loss.py", "CrossEntropyLoss.forward", 1385),
        torch("nn/functional.py", "cross_entropy", 3504),
    ),
)
BACKWARD = (
    (
        *at(127),
        torch("_tensor.py", "Tensor.backward", 623),
        torch("autograd/__init__.py", "backward", 395),
        torch("autograd/graph.py", "_engine_run_backward", 979),
    ),
)
_STEP = (
    *at(128),
    torch("optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper", 530),
    torch("optim/optimizer.py", "_use_grad_for_differentiable.<locals>._use_grad", 80),
    torch("optim/adam.py", "Adam.step", 248),
    torch("optim/optimizer.py", "_disable_dynamo_if_unsupported.<locals>.wrapper.<locals>.maybe_fallback", 148),
    torch("optim/adam.py", "adam", 970),
)
OPTIMIZER = (
    (*_STEP, torch("optim/adam.py", "_multi_tensor_adam", 720)),
    (*_STEP, torch("optim/adam.py", "_multi_tensor_adam", 806)),
)
ZERO_GRAD = ((*at(126), torch("optim/optimizer.py", "Optimizer.zero_grad", 1057)),)
COPY = (at(122),)
ITEM = (at(131),)
LOG = ((*at(133), own("log", 88)),)
SAVE = ((*at(137), own("save", 95), torch("serialization.py", "save", 968), torch("serialization.py", "_save", 1268)),)

_DATA = torch("utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 725)
_MULTI = (
    *at(121),
    _DATA,
    torch("utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._next_data", 1505),
)
WAIT_PINNED = (
    (
        *_MULTI,
        torch("utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._get_data", 1451),
        torch("utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data", 1291),
        stdlib("queue.py", "Queue.get", 180),
        stdlib("threading.py", "Condition.wait", 331),
    ),
)
_QUEUE_GET = (
    stdlib("multiprocessing/queues.py", "Queue.get", 113),
    stdlib("multiprocessing/connection.py", "_ConnectionBase.poll", 257),
    stdlib("multiprocessing/connection.py", "Connection._poll", 440),
    stdlib("multiprocessing/connection.py", "wait", 947),
    stdlib("selectors.py", "_PollLikeSelector.select", 415),
)
WAIT_WORKERS = (
    (
        *_MULTI,
        torch("utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._get_data", 1464),
        torch("utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_get_data", 1291),
        *_QUEUE_GET,
    ),
)
TAKE_BATCH = (
    (
        *at(121),
        _DATA,
        torch("utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._next_data", 1499),
        torch("utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._process_data", 1565),
        torch("utils/data/dataloader.py", "_MultiProcessingDataLoaderIter._try_put_index", 1557),
    ),
)
_FETCH = (
    torch("utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch", 54),
    torch("utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch.<locals>.<listcomp>", 54),
    own("Samples.__getitem__", 70),
)
_SINGLE = (
    *at(121),
    _DATA,
    torch("utils/data/dataloader.py", "_SingleProcessDataLoaderIter._next_data", 785),
)
_WORKER = (
    *at(121),
    torch("utils/data/dataloader.py", "DataLoader.__iter__", 500),
    torch("utils/data/dataloader.py", "DataLoader._get_iterator", 438),
    torch("utils/data/dataloader.py", "_MultiProcessingDataLoaderIter.__init__", 1176),
    stdlib("multiprocessing/process.py", "BaseProcess.start", 121),
    stdlib("multiprocessing/context.py", "Process._Popen", 224),
    stdlib("multiprocessing/context.py", "ForkProcess._Popen", 281),
    stdlib("multiprocessing/popen_fork.py", "Popen.__init__", 19),
    stdlib("multiprocessing/popen_fork.py", "Popen._launch", 71),
    stdlib("multiprocessing/process.py", "BaseProcess._bootstrap", 314),
    stdlib("multiprocessing/process.py", "BaseProcess.run", 108),
)
WORKER_IDLE = ((*_WORKER, torch("utils/data/_utils/worker.py", "_worker_loop", 358), *_QUEUE_GET),)
_IN_WORKER = (*_WORKER, torch("utils/data/_utils/worker.py", "_worker_loop", 374))
_DECODE = (
    (own("Samples.prepare", 74), site("PIL/Image.py", "Image.resize", 2440)),
    (own("Samples.prepare", 73), site("PIL/ImageFile.py", "ImageFile.load", 425)),
    (own("Samples.prepare", 75), site("PIL/ImageFilter.py", "GaussianBlur.filter", 202)),
)
_READ_FILE = (own("Samples.read", 79),)
_READ_URL = (
    own("Samples.download", 84),
    site("urllib3/response.py", "HTTPResponse.read", 1016),
    stdlib("http/client.py", "HTTPResponse.read", 466),
    stdlib("socket.py", "SocketIO.readinto", 706),
)


def fetching(in_worker: bool, what: str) -> tuple[Stack, ...]:
    """Making a batch: ``cpu``, ``disk`` or ``network``."""
    begin = (*(_IN_WORKER if in_worker else _SINGLE), *_FETCH)
    inner: tuple[Stack, ...] = {"cpu": _DECODE, "disk": (_READ_FILE,), "network": (_READ_URL,)}[what]
    return tuple((*begin, *frames) for frames in inner)


BOOTSTRAP = (
    stdlib("threading.py", "Thread._bootstrap", 1002),
    stdlib("threading.py", "Thread._bootstrap_inner", 1045),
    stdlib("threading.py", "Thread.run", 982),
)
_PIN = (*BOOTSTRAP, torch("utils/data/_utils/pin_memory.py", "_pin_memory_loop", 61))
PIN_WAITS = (
    (
        *BOOTSTRAP,
        torch("utils/data/_utils/pin_memory.py", "_pin_memory_loop", 56),
        torch("utils/data/_utils/pin_memory.py", "do_one_step", 32),
        *_QUEUE_GET,
    ),
)
PIN_COPIES = ((*_PIN, torch("utils/data/_utils/pin_memory.py", "do_one_step", 42)),)
RAY_MAIN = (
    (
        site("ray/_private/workers/default_worker.py", "<module>", 330),
        site("ray/_private/worker.py", "Worker.main_loop", 1043),
    ),
)
BUSY_THREAD = ((*BOOTSTRAP, own("Statistics.update", 150)), (*BOOTSTRAP, own("Statistics.update", 152)))
OWN_PYTHON = tuple((*at(line), own("augment_targets", 103 + line % 3)) for line in (123, 124, 125))
COLLECT = (at(134),)
ALL_REDUCE = (
    (
        *at(129),
        own("exchange", 110),
        torch("distributed/c10d_logger.py", "_exception_logger.<locals>.wrapper", 83),
        torch("distributed/distributed_c10d.py", "all_reduce", 3006),
    ),
)
_DYNAMO = (
    *at(124),
    torch("_dynamo/eval_frame.py", "OptimizedModule.__call__", 511),
    *_CALL,
    torch("_dynamo/eval_frame.py", "_TorchDynamoContext.__call__.<locals>.compile_wrapper", 1166),
)
COMPILED = ((*_DYNAMO, *_CALL, own("Model.forward", 61)),)
_CONVERT = (
    *_DYNAMO,
    torch("_dynamo/convert_frame.py", "ConvertFrame.__call__", 1871),
    torch("_dynamo/convert_frame.py", "_compile", 1250),
)
COMPILE_WAITS = (
    (
        *_CONVERT,
        torch("_inductor/graph.py", "GraphLowering.compile_to_module", 2320),
        torch("_inductor/async_compile.py", "AsyncCompile.wait", 480),
        stdlib("concurrent/futures/_base.py", "Future.result", 451),
        stdlib("threading.py", "Condition.wait", 327),
    ),
)
COMPILING = (
    (*_CONVERT, torch("_dynamo/symbolic_convert.py", "InstructionTranslator.run", 1462)),
    (*_CONVERT, torch("_dynamo/output_graph.py", "OutputGraph.call_user_compiler", 2100)),
    (*_CONVERT, torch("_functorch/aot_autograd.py", "aot_module_simplified", 1080)),
    (*_CONVERT, torch("_inductor/graph.py", "GraphLowering.run", 1020)),
    (*_CONVERT, torch("_inductor/scheduler.py", "Scheduler.codegen", 4900)),
)

LIBCUDA = "libcuda.so.1"
PYTHON = "libpython3.11.so.1.0"
_INTERPRETER: Code = (
    (6, PYTHON, "_PyEval_EvalFrameDefault"),
    (1, PYTHON, "_PyObject_Malloc"),
    (1, PYTHON, "PyObject_GenericGetAttr"),
    (1, PYTHON, "_PyFunction_Vectorcall"),
    (1, PYTHON, "tupledealloc"),
    (1, PYTHON, "lookdict_unicode_nodummy"),
)
_DISPATCH: Code = (
    (2, "libtorch_cpu.so", "_ZNK3c1010Dispatcher4callIN2at6TensorEJRKS3_EEET_RKNS_19TypedOperatorHandleE"),
    (1, "libtorch_cpu.so", "_ZN5torch8autograd12VariableType12_GLOBAL__N_15addmmEN3c1014DispatchKeySetE"),
    (1, "libtorch_cpu.so", "_ZN2at18TensorIteratorBase5buildERNS_20TensorIteratorConfigE"),
    (1, "libtorch_cpu.so", "_ZN2at4_ops5addmm4callERKNS_6TensorES4_S4_RKN3c106ScalarES8_"),
    (1, "libc10.so", "_ZN3c1010TensorImplC1EONS_7StorageENS_14DispatchKeySetEN6caffe28TypeMetaE"),
    (1, "libc10.so", "_ZN3c1013intrusive_ptrINS_10TensorImplENS_19UndefinedTensorImplEE15reset_not_null_EPS1_"),
    (1, "libc10_cuda.so", "_ZN3c104cuda20CUDACachingAllocator6Native22DeviceCachingAllocator6mallocEmP11CUstream_st"),
    (1, "libc.so.6", "malloc"),
    (1, "libc.so.6", "pthread_mutex_lock"),
)  # fmt: skip
_BINDINGS: Code = (
    (2, "libtorch_python.so", "_ZN5torch12PythonArgParser9raw_parseEP7_objectS2_S2_PS2_"),
    (1, "libtorch_python.so", "_ZN5torch8autogradL18THPVariable_linearEP7_objectS2_S2_"),
    (1, "libtorch_python.so", "THPVariable_Wrap"),
)
_LAUNCH: Code = (
    (2, "libtorch_cuda.so", "_ZN2at6native15gpu_kernel_implINS0_13BUnaryFunctorIfffEEEEvRNS_18TensorIteratorBaseE"),
    (1, "libcublas.so.12", "~cublasGemmEx"),
    (1, "libcublasLt.so.12", "~cublasLtMatmul"),
    (2, "libcudart.so.12", "cudaLaunchKernel"),
    (5, LIBCUDA, "~"),
    (2, LIBCUDA, "~cuEGLApiInit"),
)  # fmt: skip
_AUTOGRAD: Code = (
    (2, "libtorch_cpu.so", "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEE"),
    (1, "libtorch_cpu.so", "_ZN5torch8autograd9generated13AddmmBackward05applyEOSt6vectorIN2at6TensorESaIS5_EE"),
    (1, "libtorch_cpu.so", "_ZN5torch8autograd14AccumulateGrad5applyEOSt6vectorIN2at6TensorESaIS4_EE"),
)  # fmt: skip


def _mix(*parts: tuple[float, Code]) -> Code:
    found: dict[tuple[str, str], float] = {}
    for weight, code in parts:
        total = sum(one for one, _, _ in code)
        for one, image, symbol in code:
            found[image, symbol] = found.get((image, symbol), 0) + weight * one / total
    return tuple((weight, image, symbol) for (image, symbol), weight in found.items())


# A launch takes 4 to 6 of the 10 to 20 us that a whole operator takes in Python.
EAGER = _mix((0.3, _INTERPRETER), (0.12, _BINDINGS), (0.28, _DISPATCH), (0.3, _LAUNCH))
IN_AUTOGRAD = _mix((0.25, _AUTOGRAD), (0.35, _DISPATCH), (0.4, _LAUNCH))
IN_PYTHON = _mix((0.97, _INTERPRETER), (0.03, ((1.0, "libc.so.6", "malloc"),)))
REPLAY = _mix(
    (0.1, _INTERPRETER), (0.05, _BINDINGS), (0.85, ((1, "libcudart.so.12", "cudaGraphLaunch"), (9, LIBCUDA, "~")))
)
SPIN = ((0.35, "[vdso]", ""), (0.5, LIBCUDA, "~"), (0.15, LIBCUDA, "~cuEGLApiInit"))
# Seen on an H200 whose launch queue was full; whoever asks for the time in between yields about as often.
YIELD = (0.37, "libc.so.6", "__sched_yield")
YIELDS = ((1.0, LIBCUDA, "~"), YIELD)
# A pageable copy: who moves the bytes into the driver's pinned memory is not known.
STAGED_BY_DRIVER = ((0.12, "[vdso]", ""), (0.88, LIBCUDA, "~"))
STAGED_BY_LIBC = ((0.12, "[vdso]", ""), (0.3, LIBCUDA, "~"), (0.58, "libc.so.6", "~"))
# On an AMD GPU, by image: where the same things happen.
ON_ROCM = {
    LIBCUDA: (
        "libhsa-runtime64.so.1",
        "_ZN4rocr4core15InterruptSignal11WaitRelaxedE22hsa_signal_condition_tlm16hsa_wait_state_t",
    ),
    "libcudart.so.12": ("libamdhip64.so.6", "hipLaunchKernel"),
    "libtorch_cuda.so": ("libtorch_hip.so", "_ZN2at6native17vectorized_kernelE"),
    "libcublas.so.12": ("librocblas.so.4", "~rocblas_gemm_ex"),
    "libcublasLt.so.12": ("libhipblaslt.so.0", "~hipblasLtMatmul"),
    "libc10_cuda.so": ("libc10_hip.so", "_ZN3c103hip19HIPCachingAllocator3getEv"),
}
DRIVER = ((0.8, LIBCUDA, "~"), (0.2, "libc.so.6", "ioctl"))
COLLECTOR = (
    (4.0, PYTHON, "subtract_refs"),
    (3.0, PYTHON, "visit_reachable"),
    (2.0, PYTHON, "dict_traverse"),
    (1.0, PYTHON, "deduce_unreachable"),
)
DECODE = (
    (4.0, "_imaging.cpython-311-x86_64-linux-gnu.so", "~PyInit__imaging"),
    (3.0, "libjpeg.so.62", "~jpeg_fill_bit_buffer"),
    (1.0, PYTHON, "_PyEval_EvalFrameDefault"),
    (1.0, "libc.so.6", "~"),
)
MEMCPY = ((1.0, "libc.so.6", "~"),)
CRC = ((3.0, "libtorch_cpu.so", "_Z13crc32_16bytesPKvmj"), (1.0, "libc.so.6", "~"))
