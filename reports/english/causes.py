"""What is said of each cause: one row for each, which `perfdoctor explain`, docs/causes.md and the page are made from.

A text may hold Markdown: names in `code` are those of docs/evidence.md.
"""

from perfdoctor import causes
from perfdoctor.causes import CAUSES
from perfdoctor.reports.shared_words import Explanation

EXPLAINED: dict[str, Explanation] = {
    causes.INPUT_PREPROCESSING: Explanation(
        goes="goes into preparing the input",
        means=(
            "Decoding, augmenting, tokenising, collating: the input pipeline computes, in the trainer itself or in "
            "its workers while the trainer waits. What a training loop of the job's own does above the line that "
            "calls the model counts too, and so does whoever sleeps for a set time instead (`input_asleep`): for a "
            "limit on requests, or to look again."
        ),
        looks_like=(
            "slow storage (there the workers sleep in a read or a page fault; here they run), a hand-over problem "
            "(there the workers are idle), contention (there they are ready to run and get no core)."
        ),
        helps=(
            "as many workers as keep up, `ceil(worker seconds / trainer's own seconds)`, if there are cores for them "
            "and, where containers are small, memory and room in `/dev/shm`; otherwise what fits the input, which "
            "packages on the stacks tell: a tokenizer in Rust and tokens that are made once for text, decoding at a "
            "fraction of the size for images, whole arrays for numbers, tensors that are made once in place of a data "
            "frame's rows, rows in order for tables of Hugging Face datasets; on a GPU, decoding and augmenting there."
        ),
        refuted="the pace stays the same with one batch kept in memory.",
    ),
    causes.WORKER_STARTUP: Explanation(
        goes="goes into restarting workers",
        means=(
            "Loader workers are forked or spawned, import and open the dataset before their first batch, again and "
            "again. After a fork the trainer copies its memory, page by page, as it writes to it (`own_copying`)."
        ),
        looks_like=(
            "slow preprocessing at the start of each epoch; but the workers are young: `worker_starts` and "
            "`worker_life` show it."
        ),
        helps=(
            "`persistent_workers=True` on a loader that is made once, longer epochs, a fork server; a pool that is "
            "made once."
        ),
        refuted="the pauses stay with `num_workers=0`.",
    ),
    causes.DATA_TRANSFER: Explanation(
        goes="goes into handing batches from workers to the trainer",
        means=(
            "Batch hand-over (worker → trainer IPC): batches wait between worker and trainer, pickled, sent, rebuilt, "
            "pinned, or held back until it is their turn. It is not the copy from host to device, which is "
            "`gpu.host_transfer`."
        ),
        looks_like=(
            "too few workers, since the trainer waits in the loader; but `worker_busy` is low, or the trainer itself "
            "is busy rebuilding objects."
        ),
        helps=(
            "few large tensors per batch, tensors that are shared by name, less for the pinning thread to do, "
            "`in_order=False` where one batch in many is slow."
        ),
        refuted="one tensor of the same size waits as long.",
    ),
    causes.LOCK_CONTENTION: Explanation(
        goes="is spent queueing for a lock of the job's own",
        means=(
            "Workers, trainers or threads queue for a lock of the job's own: that of a shared file, a database "
            "connection or the model, for example."
        ),
        looks_like=(
            "too few workers; but one works while the others sleep in a futex, or in a library that tries a lock of a "
            "file again and again (filelock), so more of them would change nothing."
        ),
        helps="a resource for each worker, a shorter time under the lock.",
        refuted="one worker, or one trainer, is as slow in proportion.",
    ),
    causes.PYTHON_OVERHEAD: Explanation(
        goes="goes into Python and operator dispatch instead of arithmetic",
        means=(
            "The trainer calls operations instead of computing: element loops in Python, thousands of tiny operators. "
            "Compiling the model counts here too: once before the first step (`own_compiling`), which says nothing of "
            "the training, or again between steps (`own_recompiling`); where next to nothing else is seen, either may "
            "be. In a trace of a GPU job it also has two other forms. Operators work on the host and launch nothing "
            "for more than 1 ms at a time (`traced_in_operator`): on lists of tensors, on tensors in the host's "
            "memory, or in Python code of their own; a larger batch does not help there. Or the host is outside of "
            "PyTorch (`traced_outside`): then the trace shows that it is the host's time and whose, and not whether "
            "the code there computes, reads, sleeps or waits; the confidence is at most 0.6, and stacks or `attach` "
            "tell more."
        ),
        looks_like=(
            "model arithmetic, since a core is busy in both; but the machine code that runs is dispatch, allocation "
            "and the interpreter rather than a few arithmetic kernels."
        ),
        helps=(
            "where dispatch is most of it, whole-tensor operations, `torch.compile`, a fused optimizer, a larger "
            "batch; where the interpreter is (`interpreter_code`), cheaper Python of the job's own, or less of it, "
            "and environments that step together; where other libraries are (`library_code`: images that are written, "
            "targets that are matched) or tensors beside the model (`own_beside`: metrics, copies of weights), doing "
            "that more rarely or in another process; debug switches, debuggers and profilers off."
        ),
        refuted="twice the batch takes twice the time.",
    ),
    causes.KERNEL_LAUNCH: Explanation(
        goes="the GPU waits for small kernels to be launched",
        means=(
            "The interpreter's and the operators' overhead on a GPU job: the GPU runs dry between small kernels while "
            "the host launches them."
        ),
        looks_like=(
            "a launching thread that loses its core to others (then it is ready to run and gets none: cpu.contention)."
        ),
        helps="CUDA graphs, compiling, a larger batch.",
        refuted="twice the batch takes longer in proportion.",
    ),
    causes.SYNCHRONIZATION: Explanation(
        goes="goes into waiting for the GPU's queue to drain",
        means=(
            "The host reads a value from the GPU, waits until its queue has drained, and the GPU idles while it "
            "refills."
        ),
        looks_like=("a GPU at work: while the host waits, the GPU does compute, and only the gap behind it is lost."),
        helps="keep metrics on the GPU, read them rarely, copy without waiting; `CUDA_LAUNCH_BLOCKING` unset.",
        refuted="`torch.cuda.set_sync_debug_mode('warn')` is silent.",
    ),
    causes.GIL_CONTENTION: Explanation(
        goes="is spent waiting for the GIL",
        means="Another Python thread of the trainer holds the GIL.",
        looks_like=(
            "one busy core of computing; but the main thread sleeps in a futex in every phase while another thread of "
            "the same process holds the lock."
        ),
        helps="that thread's work in a process of its own, blocking instead of polling.",
        refuted="stopping the thread changes nothing.",
    ),
    causes.GARBAGE_COLLECTION: Explanation(
        goes="goes into garbage collection",
        means="The cyclic garbage collector (GC) walks through all Python objects.",
        looks_like="Python overhead at the very same line; the interpreter itself says that it is collecting.",
        helps="`gc.freeze()`, collecting at chosen steps on all ranks together, fewer objects.",
        refuted="the pace stays the same after `gc.disable()`.",
    ),
    causes.CONTENTION: Explanation(
        goes="is spent waiting for a core: there are more threads than cores",
        means="More runnable threads than cores: the main thread is ready to run and waits for a core.",
        looks_like=(
            "computing (state R in both; the scheduler's run-queue delay differs) and like a CPU quota (same "
            "run-queue delay, but there the control group is stopped and cores are idle). Whose threads they are "
            "`runnable_threads` of the job and `neighbour_cores` show; neighbours count on the cores that the job may "
            "use, and the busiest are named. Who competes with whom is told by the affinity masks of threads: two of "
            "them that may run on one core only queue there, whatever cores are idle beside it. perfdoctor's own use "
            "is measured as `own_cores`."
        ),
        helps=(
            "fewer compute threads per process or fewer workers; neighbours elsewhere; a wider affinity mask, or none "
            "by OpenMP (`OMP_PROC_BIND`)."
        ),
        refuted="the run delay stays after that.",
    ),
    causes.THROTTLED: Explanation(
        goes="the job is stopped by its control group's CPU quota",
        means="The control group's CPU quota is used up and the job stands still until the next period.",
        looks_like=(
            "contention; but `throttled_periods` grows while the host has idle cores. `os.cpu_count()` does not know "
            "about quotas, so jobs start too many threads under them."
        ),
        helps="a higher quota; otherwise no more threads than the quota has cores.",
        refuted="`nr_throttled` stands still.",
    ),
    causes.STARTUP: Explanation(
        goes="goes into one-off work at the job's start",
        means=(
            "What is done once, at a job's start, while the GPU waits: compiling, loading kernels and libraries at "
            "their first call, trying algorithms, first allocations. Known from traces only. It has its own time in "
            "seconds (`traced_startup`), and no speed-up is ever claimed for it, since later steps do none of it. "
            "From 20% of a trace on it is the verdict: then the trace is one of the start, and says nothing about "
            "the training."
        ),
        looks_like=(
            "launching (in both the host is in a launch; here one takes 1 ms to seconds) and like a full memory "
            "(there it allocates again and again, and sets up next to nothing). What comes back in later steps is no "
            "start: compiling anew is `cpu.python_overhead`."
        ),
        helps="tracing later steps; where jobs start often, caches that outlive them.",
        refuted="later steps show the same.",
    ),
    causes.EVALUATION: Explanation(
        goes="goes into evaluation, which trains nothing",
        means=(
            "Calling the model in passes without gradients: arithmetic and Python of evaluations, while training "
            "stands still. Input, saving and whatever else holds such a pass up keeps its own cause."
        ),
        looks_like=(
            "the model's arithmetic, since that is what it is; but no backward pass follows. Inside `diagnose()` the "
            "marks of forward passes say whether gradients are kept. From outside four things tell it: an evaluation "
            "loop of a library on the stack (Lightning, transformers, fastai …); a call of the model below the last "
            "line that trains, in the innermost function that does both; a loop over a DataLoader's batches that calls "
            "the model, where another line of the same function leads to whole steps; or ten times as many samples of "
            "forward passes as usual between two of training. Without any of these, evaluations of less than half a "
            "second above the lines that train are not distinguished from training. On a GPU only the host's own "
            "Python in them counts here, and inside `diagnose()` they stay outside of the account."
        ),
        helps="evaluating less often, on a part of the data, in larger batches, in inference mode.",
        refuted=(
            "the pace stays the same without it; and where training needs what these passes make, rollouts for "
            "instance, doing them more rarely is no cure."
        ),
    ),
    causes.MODEL_COMPUTE: Explanation(
        means=(
            "The model's own arithmetic on the CPU: no bottleneck in a job that trains on the CPU. Matrix products, "
            "convolutions and FFTs are mostly 0.6 of it and more (`multiplying`). Where they are less than half, "
            "operations go over whole tensors: something is written out that one operation computes, or computed and "
            "not used. The function that does so most is named."
        ),
    ),
    causes.STORAGE_READ: Explanation(
        goes="goes into reading from storage",
        means="Reads from local or mounted storage, page faults of mapped files included.",
        looks_like=(
            "preprocessing when the page cache hides it in a short test (`page_cache` shows it), like computing when "
            "files are mapped (no read call is made; `major_faults` and `read_from_storage` tell), like nothing at "
            "all in iowait, which counts neither network file systems nor busy machines."
        ),
        helps=(
            "data in memory or on local storage, fewer bytes. Three kinds want different help besides: small reads "
            "(pack samples into shards), mapped files (larger pieces), and a device that is or is not saturated "
            "(`device_busy`: more readers help only while it has room)."
        ),
        refuted="a second pass over the same files is as slow.",
    ),
    causes.NETWORK_READ: Explanation(
        goes="goes into reading from the network",
        means="Reads from sockets: object stores, HTTP, databases.",
        looks_like=(
            "idle workers, since they sleep; but they sleep on a network socket and not on the pipe of their queue."
        ),
        helps="many requests at a time, a local copy, larger objects over kept connections.",
        refuted="local files are as slow.",
    ),
    causes.CHECKPOINT_WRITE: Explanation(
        goes="goes into saving checkpoints",
        means="The trainer stands still while state is written.",
        looks_like=(
            "slow reads (both are uninterruptible sleep; the call and the path tell) and like logging (bytes tell)."
        ),
        helps="saving behind the training (model and optimizer), less often, or to faster storage.",
        refuted="leaving it out changes nothing.",
    ),
    causes.LOG_WRITE: Explanation(
        goes="goes into logging",
        means=(
            "Writing log lines and metrics, often with a flush to the device for every line, and making and writing "
            "pictures, plots, sound and tables of results."
        ),
        helps=(
            "fewer lines, no fsync, another thread; where it goes into a pipe or a connection, a reader that keeps up."
        ),
        refuted="a log to `/dev/null` is as slow.",
    ),
    causes.SWAP: Explanation(
        goes="goes into memory that is paged in and out",
        means="Memory is paged in and out.",
        looks_like="mapped files, since both are major faults; but `swap_in` moves.",
        helps="fewer workers and batches ahead, data outside Python objects, more memory.",
        refuted="`vmstat` shows no swap-in.",
    ),
    causes.GPU_COMPUTE: Explanation(
        means=(
            "The model's own arithmetic on the GPU: no bottleneck. Part of it may be needless all the same: kernels "
            "that take longer because collectives run beside them (`traced_beside`, `traced_lengthened`; *helps:* "
            "fewer channels for NCCL, another place for the overlap), and forward work that activation checkpointing "
            "does again (`traced_recomputed`; *helps:* checkpointing fewer blocks or selectively, as memory allows). "
            "Where neither counters nor a trace tell in which precision a GPU with tensor cores computes, mixed "
            "precision is named, to be tried."
        ),
    ),
    causes.MEMORY_BANDWIDTH: Explanation(
        goes="goes into memory traffic on the GPU",
        means=(
            "The memory is the limit: `gpu_dram` from 0.70 and `gpu_tensor` below 0.50 of the busy time (XProf's "
            "levels)."
        ),
        looks_like="computing, since the multiprocessors are busy.",
        helps="fused element-wise operations, 16 bits, fused attention.",
    ),
    causes.LOW_OCCUPANCY: Explanation(
        goes="goes into GPU kernels with too little work",
        means="Kernels run on less than half of the multiprocessors.",
        looks_like="a full GPU in `nvidia-smi`.",
        helps="a larger batch, compiling.",
        refuted="twice the batch gives no more samples per second.",
    ),
    causes.NO_TENSOR_CORES: Explanation(
        goes="goes into full-precision arithmetic without tensor cores",
        means=(
            "Full precision does the work and tensor cores stand idle, by hardware counter and not by kernel names, "
            "which age."
        ),
        helps="`torch.autocast`, TF32.",
        refuted="a step under autocast takes as long.",
    ),
    causes.HOST_TRANSFER: Explanation(
        goes="goes into copies between host and GPU",
        means="Copies between host and GPU that nothing overlaps.",
        looks_like="offloading or saving, which move bytes in other phases.",
        helps="pinned memory with `non_blocking=True`, fewer bytes.",
        refuted="a batch that is on the GPU already takes as long.",
    ),
    causes.MEMORY_PRESSURE: Explanation(
        goes="goes into making room in the GPU's memory",
        means="The allocator gives memory back and asks for it again.",
        looks_like=(
            "synchronisation, since `cudaFree` waits for the GPU; and a cache that works looks like full memory."
        ),
        helps="`expandable_segments`, no `empty_cache()`, less memory.",
        refuted="`num_alloc_retries` stands still.",
    ),
    causes.GPU_THROTTLED: Explanation(
        goes="is lost to lowered GPU clocks",
        means=(
            "Power, heat or the hardware hold the clocks down by 15% or more. A power cap without lower clocks is "
            "normal on a busy data-centre GPU."
        ),
        helps="cooling, the power limit, unlocked clocks.",
        refuted="an idle twin is as slow.",
    ),
    causes.GPU_CONTENTION: Explanation(
        goes="is lost to another process on the GPU",
        means="Another process uses the GPU for a tenth of the time or more.",
        helps="a GPU of one's own, MPS.",
        refuted="the pace stays the same without it.",
    ),
    causes.BANDWIDTH: Explanation(
        goes="goes into moving data between ranks",
        means="All ranks are in the collective and move bytes.",
        looks_like=(
            "a straggler's bottleneck, since the others wait in the same collective; but here none is missing. Or the "
            "GPU's own kernels hold the collective up: in traces the same ones behind kernels and alone "
            "(`traced_behind`, `traced_held_up`) tell, and where that is most of the share, a stream of high priority "
            "or another overlap helps and a faster network does not."
        ),
        helps=(
            "by how the ranks share the model, with a whole model each, accumulation under `no_sync()` (around the "
            "forward pass too), gradients in 16 bits (bfloat16 on NCCL, float16 on gloo, which refuses the other), "
            "overlap; with a shared one (`fully_shard`, FullyShardedDataParallel, DeepSpeed), parameters that are "
            "kept between the passes, 16 bits, prefetching, sharing within a host, and accumulation by their own "
            "calls; with shared layers (tensor parallelism, told by what the forward pass exchanges), fewer ranks for "
            "each layer; with experts, tables or sequences that are divided (told by sending all to all), fewer ranks "
            "for them, and something to compute meanwhile; for all a faster transport, and one process where all "
            "ranks share one host's cores."
        ),
        refuted="steps without the exchange take as long.",
    ),
    causes.LATENCY: Explanation(
        goes="goes into many small collectives",
        means=(
            "Many small collectives: wake-ups cost, not bytes. `bytes_per_packet` is small and threads sleep most of "
            "the time."
        ),
        helps=(
            "one flat tensor, DistributedDataParallel's buckets, larger units of `fully_shard`, no SyncBatchNorm, "
            "rarer metrics, no barriers."
        ),
        refuted="ten times the bytes take ten times as long.",
    ),
    causes.DATA_PARALLEL: Explanation(
        goes="goes into nn.DataParallel's scatter and gather",
        means="`nn.DataParallel` scatters, replicates and gathers in one Python process.",
        helps="DistributedDataParallel.",
        refuted="one GPU alone is slower in proportion.",
    ),
    causes.UNOBSERVED_RANK: Explanation(
        goes="is spent waiting for a rank that was not observed",
        means="The watched ranks wait for one that was not watched: it may be late, or the exchange slow.",
        helps="watching all ranks.",
    ),
    causes.UNATTRIBUTED: Explanation(
        means=(
            "What could not be attributed stays visible. It is never dropped, and never shared out among the others."
        ),
    ),
}


def title(*, cause: str) -> str:
    return CAUSES[cause].title


def goes(*, cause: str) -> str:
    return EXPLAINED[cause].goes
