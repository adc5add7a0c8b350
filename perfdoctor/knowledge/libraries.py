"""What a job uses, as frames of well-known libraries show once they are seen, and as its own source calls them.

It decides which advice fits a job: how its ranks share the model, how its optimizer runs, what its input is made of.
Calls that are looked for in its source are those whose arguments advice changes, and those that train, draw at random
or give results away. Below them are the loops of libraries that evaluate, and what libraries do with results.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from perfdoctor.knowledge.frames import INSTALLED, Frame, meaning


class Use(NamedTuple):
    """Frames that show that a job uses something.

    Attributes:
        setting: what they tell of, as in ``perfdoctor.metrics.settings``.
        value: which one it is.
        file: searched for in the frame's path.
        functions: names without classes; empty for any.
    """

    setting: str
    value: str
    file: re.Pattern[str]
    functions: frozenset[str]

    def shows(self, frame: Frame) -> bool:
        """Whether a frame is one of these."""
        return (not self.functions or frame.simple_name in self.functions) and self.file.search(frame.file) is not None


def _use(setting: str, value: str, file: str, functions: str = "") -> Use:
    return Use(setting, value, re.compile(rf"/{file}$"), frozenset(functions.split()))


# Where Lightning (validation during a fit, Trainer.validate, .test and .predict) and the Trainer of transformers
# (.evaluate and .predict) evaluate: file and functions.
_LIGHTNING_EVALUATES = (r"(?:lightning/pytorch|pytorch_lightning)/loops/(?:evaluation|prediction)_loop\.py", "")
_TRANSFORMERS_EVALUATES = (
    rf"{INSTALLED}/transformers/trainer(?:_seq2seq)?\.py",
    "evaluate predict evaluation_loop prediction_loop",
)
# Loggers only put their records into a queue (QueueHandler), from which a thread of theirs writes them.
BESIDE = "in a thread"
# How the ranks of a job share the model.
DEEPSPEED, MEGATRON, FULLY_SHARD, FSDP, DDP = "deepspeed", "megatron", "fully_shard", "fsdp", "ddp"
# Of these, where no rank has the whole model. Megatron's optimizer may be split over ranks, its model is by layers.
SHARDED = frozenset((DEEPSPEED, FULLY_SHARD, FSDP))
# What ranks exchange in the passes themselves, of layers that they share: they add up activations (tensor parallelism),
# or send them all to all and back (experts, embedding tables or sequences that are divided among ranks).
ADDED_UP, ALL_TO_ALL = "added up", "all to all"
# How many operators an optimizer runs for its parameters.
SINGLE, MULTI, FUSED = "single", "multi", "fused"
# Of embedding tables, that their gradients hold the rows only that a batch touches.
SPARSE_GRADIENTS = "sparse gradients"
ADAM = "Adam"  # and AdamW
ADAGRAD = "Adagrad"

# Of several rows of a setting the first that is seen decides: DeepSpeed and Megatron also use what follows them.
USES: tuple[Use, ...] = (
    # deepspeed.initialize's engine
    _use("parallel", DEEPSPEED, rf"{INSTALLED}/deepspeed/runtime/.*\.py"),
    # megatron.core.distributed, which is often not installed but lies beside the script
    _use("parallel", MEGATRON, r"megatron/core/distributed/.*\.py"),
    # torch.distributed.fsdp.fully_shard (FSDP2; before 2.6 in _composable), FullyShardedDataParallel and
    # DistributedDataParallel
    _use("parallel", FULLY_SHARD, r"torch/distributed/(?:fsdp/_fully_shard|_composable/fsdp)/.*\.py"),
    _use("parallel", FSDP, r"torch/distributed/fsdp/[^/]+\.py"),
    _use("parallel", DDP, r"torch/nn/parallel/distributed\.py"),
    # torch.distributed.pipelining, Megatron's and DeepSpeed's schedules: stages of a model on several ranks
    _use("pipeline", "yes", r"torch/distributed/pipelining/\w+\.py"),
    _use("pipeline", "yes", r"megatron/core/pipeline_parallel/\w+\.py"),
    _use("pipeline", "yes", rf"{INSTALLED}/deepspeed/runtime/pipe/\w+\.py"),
    # torch.distributed.tensor.parallel, which transformers use too
    _use("tensor_parallel", "yes", r"torch/distributed/tensor/parallel/.*\.py"),
    _use("tensor_parallel", "yes", rf"{INSTALLED}/transformers/integrations/tensor_parallel\.py"),
    # torch.nn.Embedding and EmbeddingBag; of their gradients torch.optim.SparseAdam takes none but sparse ones
    _use("embeddings", SPARSE_GRADIENTS, r"torch/optim/sparse_adam\.py"),
    _use("embeddings", "yes", r"torch/nn/modules/sparse\.py", "forward"),
    # torch.distributed.all_gather_object and its like, which pickle what they are given
    _use(
        "object_collectives", "yes", r"torch/distributed/distributed_c10d\.py",
        "all_gather_object gather_object broadcast_object_list scatter_object_list send_object_list recv_object_list",
    ),
    # torch.distributed.rpc: functions that another process runs, of a parameter server for instance
    _use("remote_calls", "yes", r"torch/distributed/rpc/(?:api|rref_proxy)\.py"),
    # torch.nn.SyncBatchNorm
    _use("sync_batch_norm", "yes", r"torch/nn/modules/_functions\.py"),
    # torch.optim's three ways
    _use(
        "optimizer", FUSED, r"torch/optim/(?:adam|adamw|sgd|adagrad)\.py",
        "_fused_adam _fused_adamw _fused_sgd _fused_adagrad",
    ),
    _use(
        "optimizer", MULTI, r"torch/optim/(?:adam|adamw|sgd|adagrad)\.py",
        "_multi_tensor_adam _multi_tensor_adamw _multi_tensor_sgd _multi_tensor_adagrad",
    ),
    _use(
        "optimizer", SINGLE, r"torch/optim/(?:adam|adamw|sgd|adagrad)\.py",
        "_single_tensor_adam _single_tensor_adamw _single_tensor_sgd _single_tensor_adagrad",
    ),
    # which optimizer it is, of those that have these ways
    _use("update", ADAM, r"torch/optim/adamw?\.py"),
    _use("update", "SGD", r"torch/optim/sgd\.py"),
    _use("update", ADAGRAD, r"torch/optim/adagrad\.py"),
    # what torch.compile has made runs; the second file before 2.2
    _use("compiled", "yes", r"torch/_functorch/(?:_aot_autograd/runtime_wrappers|aot_autograd)\.py"),
    # whose training loop it is: the Trainer of Hugging Face transformers, or Lightning's
    _use("loop", "transformers", rf"{INSTALLED}/transformers/trainer\.py"),
    _use("loop", "lightning", rf"{INSTALLED}/(?:lightning/pytorch|pytorch_lightning)/(?:trainer|loops)/.*\.py"),
    # and whether it evaluates in that library's loop, or calls its model by itself
    _use("evaluation_loop", "transformers", *_TRANSFORMERS_EVALUATES),
    _use("evaluation_loop", "lightning", *_LIGHTNING_EVALUATES),
    # the standard library's loggers, and whether another thread writes for them
    _use("logger", BESIDE, r"lib(?:64)?/python3\.\d+/logging/handlers\.py", "enqueue prepare"),
    _use("logger", "yes", r"lib(?:64)?/python3\.\d+/logging/.*\.py"),
    # torch.nn.Conv2d …
    _use("convolutions", "yes", r"torch/nn/modules/conv\.py"),
    # torch.nn.LSTM, GRU and RNN, which torch.compile leaves as they are (torch._dynamo.config.allow_rnn)
    _use("recurrent", "yes", r"torch/nn/modules/rnn\.py", "forward"),
    # Hugging Face datasets: a table that was shuffled, selected from or filtered is read through a list of its rows
    _use(
        "dataset", "arrow rows by number", rf"{INSTALLED}/datasets/(?:formatting/formatting|table)\.py",
        "_query_table_with_indices_mapping",
    ),
    _use("dataset", "arrow", rf"{INSTALLED}/datasets/arrow_dataset\.py", "__getitem__ __getitems__ _getitem"),
    # and a stream of them, which is split between workers by its shards
    _use("streamed", "yes", rf"{INSTALLED}/datasets/iterable_dataset\.py"),
    # Rows of a data frame, which are made anew each time that one is asked for
    _use("dataset", "rows of a table", rf"{INSTALLED}/pandas/core/(?:indexing|series)\.py"),
    _use("dataset", "rows of a table", rf"{INSTALLED}/polars/dataframe/frame\.py", "__getitem__ row"),
    # Gymnasium's environments that step together, and others
    _use("environments", "together", rf"{INSTALLED}/(?:gymnasium/vector|stable_baselines3/common/vec_env)/.*\.py"),
    _use("environments", "one by one", rf"{INSTALLED}/(?:gymnasium|gym)/.*\.py"),
    # What watches every call or line, and was perhaps left on
    _use("watched_by", "cProfile", r"lib(?:64)?/python3\.\d+/(?:cProfile|profile)\.py"),
    _use("watched_by", "a debugger (pdb)", r"lib(?:64)?/python3\.\d+/(?:pdb|bdb)\.py"),
    _use("watched_by", "a debugger (debugpy)", rf"{INSTALLED}/(?:debugpy|pydevd|_pydevd_bundle)/.*\.py"),
    _use("watched_by", "trace", r"lib(?:64)?/python3\.\d+/trace\.py"),
    _use("watched_by", "coverage", rf"{INSTALLED}/coverage/.*\.py"),
    _use("watched_by", "pyinstrument", rf"{INSTALLED}/pyinstrument/.*\.py"),
    _use("watched_by", "VizTracer", rf"{INSTALLED}/viztracer/.*\.py"),
    _use("watched_by", "line_profiler", rf"{INSTALLED}/(?:line_profiler/.*|kernprof)\.py"),
    _use("watched_by", "memory_profiler", rf"{INSTALLED}/memory_profiler\.py"),
    _use("watched_by", "Memray", rf"{INSTALLED}/memray/.*\.py"),
    _use("watched_by", "Scalene", rf"{INSTALLED}/scalene/.*\.py"),
)  # fmt: skip

# The thread of transformers' Trainer that looks at the memory without a pause (skip_memory_metrics=False).
MEMORY_METRICS = re.compile(rf"{INSTALLED}/transformers/trainer_utils\.py:\d+ \S*peak_monitor_func$")
# Packages that are called to log, draw or print something: what others write into a log, they say by themselves.
LOGS = frozenset((
    "logging", "loguru", "structlog", "torch", "tensorboard", "tensorboardX", "wandb", "mlflow", "comet_ml", "neptune",
    "clearml", "aim", "tqdm", "rich", "click", "matplotlib", "seaborn", "plotly", "csv", "json", "lightning",
    "pytorch_lightning", "transformers", "accelerate", "python", "warnings",
))  # fmt: skip
# Calls that save something packed, as ``library_calls`` names them (the last ones of Python 3.10, without a class).
COMPRESS = frozenset((
    "numpy savez_compressed", "gzip GzipFile.write", "bz2 BZ2File.write", "lzma LZMAFile.write",
    "gzip write", "bz2 write", "lzma write",
))  # fmt: skip

# What an input is made of, by the packages whose frames are innermost while it is prepared (``package_of``).
PREPARED: dict[str, frozenset[str]] = {
    "images": frozenset(("PIL", "cv2", "imageio", "skimage", "torchvision", "albumentations", "kornia")),
    "sound": frozenset(("torchaudio", "librosa", "soundfile", "audioread", "resampy", "torch_audiomentations")),
    "video": frozenset(("av", "decord", "torchcodec", "moviepy", "pytorchvideo")),
    # The standard library's search and cut text for many ends: a sort key, a file's name, a table's cells.
    "text": frozenset(("tokenizers", "sentencepiece", "tiktoken", "transformers", "nltk", "spacy")),
    "arrays": frozenset(("numpy", "scipy", "pandas")),
}  # fmt: skip
# What a program is started by, as the beginning of such calls (``library_calls``).
PROGRAMS = "subprocess "
# What opens a file of many samples, and reads where each of them lies.
OPENERS = frozenset((
    "zipfile ZipFile", "tarfile TarFile.open", "h5py File", "pyarrow ParquetFile", "pandas HDFStore",
    "zarr open", "zarr open_group", "xarray open_dataset", "rasterio open",
))  # fmt: skip
# Those that leave it to the first look-up to read where the samples lie, and what looks up.
LOOK_UPS: Mapping[str, frozenset[str]] = {
    "tarfile TarFile.open": frozenset((
        "tarfile TarFile.extractfile", "tarfile TarFile.extract", "tarfile TarFile.getmember",
        "tarfile TarFile.getmembers", "tarfile TarFile.getnames",
    )),
}  # fmt: skip
# Those that hold tables whose rows the job takes by itself.
TABLES = frozenset(("pandas", "polars"))

# Files of torch's that a step calls; launchers and decorators of torch's call the job's own code.
OF_STEPS = re.compile(r"/torch/(?:nn|autograd|optim|utils/data|_dynamo)/|/torch/_tensor\.py$")
# What runs checkpointed blocks again.
CHECKPOINTING = re.compile(
    rf"/torch/utils/checkpoint\.py$|{INSTALLED}/(?:deepspeed/runtime/activation_checkpointing|fairscale/nn/checkpoint)/"
)

# What clears gradients, a module's or an optimizer's.
CLEARS = meaning(r"torch/(?:optim/optimizer|nn/modules/module)\.py", "zero_grad", "")
# The call of a model that torch.compile was given, and what of it runs compiled or is being compiled: what backends
# have made, graphs that a backend takes as they are (torch.fx), and all that Dynamo and Inductor do before.
_COMPILES = meaning(r"torch/_dynamo/eval_frame\.py", "compile_wrapper _fn", "")
RUNS_COMPILED = (
    meaning(r"torch/_functorch/(?:_aot_autograd/runtime_wrappers|aot_autograd)\.py", "", ""),
    meaning(r"<eval_with_key>\.\d+", "", ""),
    meaning(r"torch/_dynamo/(?!eval_frame).*\.py", "", ""),
    meaning(r"torch/_inductor/.*\.py", "", ""),
)


def calls_compiled(frame: Frame) -> bool:
    """Whether a frame is the call of what torch.compile was given.

    Before PyTorch 2.8 what is to be left alone is called by a function of the same name, in another class.
    """
    by_class = frame.simple_name == "compile_wrapper" or frame.function.startswith("_TorchDynamoContext.")
    return by_class and _COMPILES.matches(frame)


# What calls hooks: of modules, forward ones and those around autograd's, and of tensors.
CALLS_HOOKS = (
    meaning(r"torch/nn/modules/module\.py", "_call_impl inner", ""),
    meaning(r"torch/autograd/graph\.py", "_engine_run_backward", ""),
    meaning(r"torch/autograd/__init__\.py", "backward grad", ""),  # before 2.3
    meaning(r"torch/utils/hooks\.py", "", ""),
)
# torch.autograd.Function.apply: what it calls has a backward pass of its own.
OWN_OPERATORS = meaning(r"torch/autograd/function\.py", "", "")

# Calls in the job's own source that are looked for.
# Layers of torch's that compute one piece of a sequence at a time; torch.nn has one for all of them beside each
# (torch/nn/modules/rnn.py).
CELLS = {"LSTMCell": "LSTM", "GRUCell": "GRU", "RNNCell": "RNN"}
FORMAT_TRACEBACKS = ("traceback", "linecache")  # as autograd's anomaly detection does at every operator
LOADERS = frozenset(("DataLoader", "StatefulDataLoader"))  # torchdata's takes what torch's does, and more
# Those of torch.optim that have ``fused`` (its documentation, "Algorithms"), and as what ``update`` names them.
UPDATES = {"Adam": ADAM, "AdamW": ADAM, "SGD": "SGD", "Adagrad": ADAGRAD}
THREADS = frozenset(("set_num_threads",))
BACKWARD = "backward"
# torch.autograd.grad, and what makes of its work a part of the graph that a later backward pass goes through.
GRADIENT, IN_GRAPH = "grad", "create_graph"
# What keeps gradients away from parameters or from what a module puts out, by name; and contexts without any.
DETACHES = frozenset(("detach", "detach_"))
FREEZES = DETACHES | {"requires_grad", "requires_grad_", "freeze"}
NO_GRADIENTS = frozenset(("no_grad", "inference_mode", "set_grad_enabled"))
# What makes of a tensor something that no gradients go through; and the method that tells a module to evaluate.
LEAVES_GRAPH = DETACHES | {"data", "argmax", "argmin", "argsort", "item", "tolist", "numpy"}
EVALUATES = "eval"
# Methods of tensors that give numbers, and functions that do; attributes that say what a tensor is like; and arguments
# of functions that change one in its place.
READS_OUT = frozenset(("item", "tolist", "numpy", "float", "int", "bool", "len"))
# Of those, what is only ever called of a tensor to have its value as a number.
GIVES_NUMBERS = frozenset(("item",))
DESCRIBES = frozenset(("shape", "dtype", "device", "training"))
IN_PLACE = frozenset(("out", "inplace"))
# What is given a model's parameters and makes nothing of them.
TAKES_NO_PARAMETERS = frozenset(("clip_grad_norm_", "clip_grad_value_", "get_total_norm", "sum", "len", "next"))
# What tokenizers and collators are given that pads every text to one length, however short it is.
PADS_ALL = re.compile(r"""\b(?:padding\s*=\s*["']max_length["']|pad_to_max_length\s*=\s*True\b)""")
# What makes ranks exchange numbers of 16 bits, if that is what it is given: FSDP's arguments, and DDP's method.
EXCHANGE_POLICIES, COMM_HOOK = frozenset(("MixedPrecisionPolicy", "MixedPrecision")), "register_comm_hook"
# What keeps a backward pass from exchanging gradients, where they are accumulated: DDP's and FSDP's, and FSDP 2's.
HOLDS_BACK = frozenset(("no_sync", "set_requires_gradient_sync"))
# Lightning's plug-in of that name is given no types: it has to do with each rank's own arithmetic.
GIVES_TYPES = re.compile(r"\bMixedPrecisionPolicy\b|_dtype\b|float16\b|\bhalf\b|register_comm_hook")
# Those that take the same arguments, together.
SAME_ARGUMENTS: tuple[frozenset[str], ...] = (
    LOADERS,
    frozenset(UPDATES),
    frozenset(("TrainingArguments", "Seq2SeqTrainingArguments")),
    frozenset(("Trainer",)),
    THREADS,
)
# What confines a process to some cores from inside.
PINS = frozenset(("sched_setaffinity",))
CALLED_NAMES = EXCHANGE_POLICIES.union(PINS, *SAME_ARGUMENTS)
# Of which packages: others have some of the names for what takes other arguments.
CALLED_PACKAGES = frozenset(("os", "torch", "torchdata", "transformers", "lightning", "pytorch_lightning"))
# The Trainer of transformers makes its loaders itself, by arguments of its own.
LOADER_OF_TRAINER = {
    "num_workers": "dataloader_num_workers",
    "persistent_workers": "dataloader_persistent_workers",
    "pin_memory": "dataloader_pin_memory",
    "prefetch_factor": "dataloader_prefetch_factor",
    "drop_last": "dataloader_drop_last",
    "batch_size": "per_device_train_batch_size",
}
# And the one with which it evaluates.
LOADER_OF_EVALUATION = {**LOADER_OF_TRAINER, "batch_size": "per_device_eval_batch_size"}


# What draws at random: the functions of these modules, with the names that only say which sample comes next left out.
DRAWS: Mapping[str, frozenset[str]] = {
    "random": frozenset((
        "random", "uniform", "triangular", "betavariate", "expovariate", "gammavariate", "gauss", "normalvariate",
        "lognormvariate", "vonmisesvariate", "paretovariate", "weibullvariate", "getrandbits", "randint", "randrange",
    )),
    "numpy.random": frozenset((
        "rand", "randn", "randint", "random", "random_sample", "ranf", "uniform", "normal", "standard_normal",
        "beta", "binomial", "exponential", "gamma", "laplace", "lognormal", "poisson", "triangular",
    )),
    "torch": frozenset((
        "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "bernoulli", "normal", "poisson",
    )),
}  # fmt: skip
# What gives whole numbers: as the index of something it only says which.
WHOLE_NUMBERS = frozenset(("randint", "randrange", "integers"))
# What makes a generator, and its methods that draw; those of torch's are handed to its functions.
GENERATORS = frozenset(("random.Random", "random.SystemRandom", "numpy.random.default_rng", "numpy.random.RandomState"))
DRAWS_OF_GENERATORS = DRAWS["random"] | DRAWS["numpy.random"] | {"integers"}
# Methods of tensors that fill them with what they draw.
FILLS = frozenset(("uniform_", "normal_", "random_", "bernoulli_", "exponential_", "log_normal_", "cauchy_"))
# Packages whose transforms draw where their class says so by its first word.
TRANSFORMS = frozenset(("torchvision", "torchaudio", "albumentations", "kornia", "monai", "torchio"))
DRAWING_TRANSFORM = "Random"


# Loops of libraries that call a model without training it: what is called below them serves an evaluation.
EVALUATION_LOOPS = (
    meaning(*_LIGHTNING_EVALUATES, "evaluation"),
    meaning(*_TRANSFORMERS_EVALUATES, "evaluation"),
    # fastai's Learner.fit and .validate
    meaning(rf"{INSTALLED}/fastai/learner\.py", "_do_epoch_validate", "evaluation"),
    # ultralytics' validators, sentence_transformers' evaluators, detectron2's
    meaning(rf"{INSTALLED}/ultralytics/engine/validator\.py", "", "evaluation"),
    meaning(rf"{INSTALLED}/sentence_transformers/(?:.+/)?evaluation/.*\.py", "", "evaluation"),
    meaning(rf"{INSTALLED}/detectron2/evaluation/evaluator\.py", "inference_on_dataset", "evaluation"),
)

# What is done with results. Below the model's call that is logging; above it, a query for data or a part of a sample.
RESULTS = (
    # requests.post, Session.post …; httpx.post, Client.post …
    meaning(rf"{INSTALLED}/requests/(?:api|sessions)\.py", "post put patch", "logging"),
    meaning(rf"{INSTALLED}/httpx/_(?:api|client)\.py", "post put patch", "logging"),
    # pictures: PIL.Image.Image.save, torchvision.utils.save_image and make_grid, imageio.imwrite, skimage.io.imsave
    meaning(rf"{INSTALLED}/PIL/Image\.py", "save", "logging"),
    meaning(rf"{INSTALLED}/torchvision/utils\.py", "", "logging"),
    meaning(rf"{INSTALLED}/imageio/(?:v2|v3)\.py", "imwrite imsave mimwrite mimsave volwrite", "logging"),
    meaning(rf"{INSTALLED}/skimage/io/.*\.py", "imsave", "logging"),
    # plots: matplotlib and seaborn draw on the CPU; plotly and bokeh write pages
    meaning(rf"{INSTALLED}/(?:matplotlib|seaborn|plotly|bokeh)/.*\.py", "", "logging"),
    # sound: torchaudio.save, soundfile.write, scipy.io.wavfile.write
    meaning(rf"{INSTALLED}/torchaudio/.*\.py", "save save_with_torchcodec", "logging"),
    meaning(rf"{INSTALLED}/(?:soundfile|scipy/io/wavfile)\.py", "write", "logging"),
    # tables: DataFrame.to_csv, to_parquet …
    meaning(
        rf"{INSTALLED}/pandas/core/(?:generic|frame)\.py",
        "to_csv to_excel to_feather to_hdf to_json to_parquet to_pickle to_sql",
        "logging",
    ),
    # text: print(tensor), pprint; json.dump, csv.DictWriter
    meaning(r"torch/_tensor_str\.py", "", "logging"),
    meaning(r"lib(?:64)?/python3\.\d+/pprint\.py", "", "logging"),
    meaning(r"lib(?:64)?/python3\.\d+/json/__init__\.py", "dump", "logging"),
    meaning(r"lib(?:64)?/python3\.\d+/csv\.py", "writerow writerows", "logging"),
)
# Pools of processes that come up or are ended: multiprocessing's, and the executors of concurrent.futures and of loky,
# which joblib takes.
POOLS = (
    meaning(
        r"multiprocessing/pool\.py", "__init__ _repopulate_pool_static _terminate_pool join terminate", "other", "pool"
    ),
    meaning(
        r"(?:concurrent/futures/process|loky/process_executor)\.py",
        "_start_executor_manager_thread _launch_processes _spawn_process _adjust_process_count shutdown",
        "other",
        "pool",
    ),
)
