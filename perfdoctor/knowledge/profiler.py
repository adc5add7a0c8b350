"""Names in traces of torch.profiler: ranges that PyTorch marks, calls of CUDA's and HIP's runtimes, frames, types."""

from __future__ import annotations

import re

# The profiler's own steps.
STEP = re.compile(r"ProfilerStep\s*#?(\d+)")
STEP_PREFIX = "ProfilerStep"

# --- ranges on the host ---------------------------------------------------------------------------------------------

# PyTorch marks each fetch of a batch; with stacks its Python frame is there too.
LOADING = re.compile(r"enumerate\(DataLoader\)#|torch/utils/data/dataloader\.py\(\d+\): __next__")
LOADER_WITH_WORKERS = "_MultiProcessingDataLoaderIter"
SAVING = re.compile(r"torch/serialization\.py\(\d+\): save$|torch/distributed/checkpoint/.*: (async_)?save$")
# Since 2.0 torch.compile marks what it times of its own work; with stacks its Python frames are there too. What runs
# compiled code ("Torch-Compiled Region", "CompiledFunction", "TorchDynamo Cache Lookup") compiles nothing.
COMPILING = re.compile(
    r" \(dynamo_timed\)$|torch/_dynamo/convert_frame\.py\(\d+\): _compile$"
    r"|triton/compiler/compiler\.py\(\d+\): compile$"
)
HOST_COLLECTIVE = re.compile(r"^(gloo|mpi|ucc):|^c10d::(barrier|monitored_barrier)")
# PyTorch marks nn.DataParallel's forward pass. Its autograd functions (torch/nn/parallel/_functions.py) and, with
# stacks, its Python frames spread the model and the batch over the GPUs and collect what comes of it.
DATA_PARALLEL = re.compile(r"^DataParallel\.forward$")
SPREADING = re.compile(
    r"^(Broadcast|ReduceAddCoalesced|Scatter|Gather)(Backward)?$"
    r"|torch/nn/parallel/(replicate|scatter_gather|comm|_functions)\.py\(\d+\): "
)
# Built-in functions in which a thread waits for others: those of autograd, of a collective, or behind a lock.
AWAITING = re.compile(r"^<built-in method (run_backward|wait|acquire|barrier|monitored_barrier) of ")
# Operators of ATen and of other libraries; not the nodes of autograd.
LIBRARY_OPERATOR = re.compile(r"^(?!autograd::)\w+::")
OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")
BACKWARD_NODE = re.compile(r"^autograd::engine::evaluate_function")
# Where the forward pass runs again: PyTorch's frames (with stacks), or autograd's node of the reentrant variant.
RECOMPUTING = re.compile(
    r"torch/utils/checkpoint\.py\(\d+\): (recompute_fn|unpack_hook|backward)$|^CheckpointFunctionBackward$"
)
BACKWARD = re.compile(
    r"^autograd::engine::evaluate_function: "
    r"|torch/autograd/(__init__|graph)\.py\(\d+\): (backward|_engine_run_backward)$"
)

# --- calls of the runtime, and copies on a device -------------------------------------------------------------------

# Freeing device memory waits until the device has done all its work, which is why it counts as allocating and not as
# synchronizing; pinned host memory is allocated with the same lock held.
ALLOCATING = re.compile(
    r"^(cuda|hip|cu)(Malloc|Free|HostAlloc|HostRegister|MallocHost|FreeHost|MallocAsync|FreeAsync|MemCreate|MemMap"
    r"|MemRelease|MemUnmap|MemSetAccess|MemAddressReserve|HostMalloc|HostFree)"
)
SYNCHRONIZING = re.compile(r"^(cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize|^(synchronize|synchronizeStream)$")
COPY_CALL = re.compile(r"^(cuda|hip|cu)Memcpy")
TO_HOST = re.compile(r"^Memcpy DtoH|Device -> (Pageable|Pinned|Host)")
TO_DEVICE = re.compile(r"^Memcpy HtoD|(Pageable|Pinned|Host) -> Device")
# For names in lower case, as ``perfdoctor.knowledge.kernels`` has them.
PAGEABLE_COPY = re.compile(r"pageable")
HOST_DEVICE_COPY = re.compile(r"pageable|pinned|htod|dtoh")

# --- frames ---------------------------------------------------------------------------------------------------------

FRAME = re.compile(r"(?P<file>[^;:]+\.pyx?)\((?P<line>\d+)\): (?P<function>[^;]+)")

# --- types ----------------------------------------------------------------------------------------------------------

# Bytes of an element, by the names of PyTorch's scalar types …
SCALAR_BYTES = {
    "c10::BFloat16": 2, "c10::Half": 2, "float": 4, "double": 8,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1, "c10::Float8_e4m3fnuz": 1, "c10::Float8_e5m2fnuz": 1,
}  # fmt: skip
# … and the precision, as ``perfdoctor.knowledge.kernels`` names it.
SCALAR_PRECISION = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32"}
# The same of what collectives carry. The first name that is found counts: "float" is in several.
MESSAGE_BYTES = {"float8": 1, "bfloat16": 2, "half": 2, "short": 2, "double": 8, "long": 8, "float": 4, "int": 4}
