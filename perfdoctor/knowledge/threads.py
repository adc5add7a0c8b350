"""What a thread is by the name that a library gives it."""

# Main threads of torch's loader workers (torch/utils/data/_utils/worker.py, old and new).
LOADER_WORKERS = ("pt_data_worker", "pt_multiprocess")
# The function that they run.
WORKER_LOOP = "_worker_loop"
# torch's thread that copies batches into page-locked memory (torch/utils/data/_utils/pin_memory.py), old and new.
PINS = "pin"
# The same by its whole name.
PINNING = "pt_data_pin"
# The function that it runs, which Python 3.10 and later put into the name of a thread that has none of its own.
PINNING_LOOP = "_pin_memory_loop"
# What threads of multiprocessing's pools and queues are called in Python: they pickle and unpickle what processes
# hand to each other (multiprocessing/pool.py, queues.py).
PASSING_ON = ("_handle_results", "_handle_tasks", "QueueFeederThread")
# Threads of process groups by backend (torch/csrc/distributed/c10d/ProcessGroup*.cpp). A job with both computes on
# GPUs, and its gradients go through NCCL.
BACKENDS = {"nccl": "pt_nccl", "gloo": "pt_gloo"}
# They move what ranks exchange, and add it up: gloo's own, and those that torch starts for it.
EXCHANGES = ("gloo", "pt_gloo")
# Threads of process groups (torch/csrc/distributed/c10d/ProcessGroup*.cpp) and what serves their connections. Others
# of a loader worker are named as it is, pt_data_worker.
COLLECTIVES = ("pt_gloo", "pt_nccl", "pt_tcpstore", "gloo", "nccl")
# They are torch's, a driver's or a communication library's own, and no part of the intra-op thread pool, whose threads
# bear the name of the thread that created them; torch 2.4 called that pt_main_thread. In lower case.
# TensorPipe's carry torch.distributed.rpc's messages, and look at their queues without end (its busy_polling_loop.h).
NOT_IN_POOL = ("pt_", "cuda", "gloo", "nccl", "tp_")
# torch's own among a trainer's threads, which prepare no input.
NOT_INPUT = ("pt_gloo", "pt_autograd", "TP_")
# It carries out the backward pass on an accelerator, one for each device, while the main thread sleeps in autograd's
# engine (torch/csrc/autograd/engine.cpp; named since 2.4).
AUTOGRAD = "pt_autograd"
# Of CUDA's driver: a process that has one of them has a context on a GPU.
OF_DRIVERS = ("cuda-EvtHandlr", "cuda0")
