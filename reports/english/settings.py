"""What settings of a job and parts of its hardware are called, and their values; ``perfdoctor.metrics.settings``."""

NAMES = {
    "trainers": "Trainers",
    "workers": "Loader workers per trainer",
    "cores": "Cores the job may use",
    "physical_cores": "Physical cores among them",
    "host_cores": "Cores of the host",
    "affinity_cores": "Cores in the trainer's affinity mask",
    "quota_cores": "CPU quota in cores",
    "cpu_model": "CPU",
    "memory_bytes": "Memory of the host",
    "memory_limit_bytes": "Memory limit",
    "kernel": "Linux kernel",
    "gpus": "GPUs",
    "gpu_name": "GPU",
    "compute_capability": "Compute capability of the GPU",
    "on_gpu": "Trains on a GPU",
    "trainer_threads": "Threads per trainer",
    "worker_threads": "Threads per loader worker",
    "ranks_started": "Ranks are started",
    "start_method": "How workers are started",
    "pin_thread": "Pins batches in a thread",
    "exchange_policy": "Says how ranks exchange",
    "accumulates_at": "Makes one update of several passes",
    "exchanges_again": "Exchanges gradients again and again for one update",
    "updates_when": "Updates its weights when",
    "saves_when": "Saves when",
    "logs_when": "Logs when",
    "evaluates_when": "Evaluates when",
    "evaluates_at": "Evaluates at",
    "pads_all": "Pads all texts to one length",
    "update": "Optimizer",
    "made_of_state": "Makes batches of what its loop changes",
    "pool_at": "Makes pools of processes",
    "per_pass_at": "Prepares for a whole pass over the data",
    "unused_pass": "Gradients nobody uses",
    "untrained": "Evaluates with gradients",
    "trains_part": "Trains a part of the model",
    "compiled": "Compiled by torch.compile",
    "graphs": "Work launched as CUDA graphs",
    "trains": "Trains the model",
    "pinned_at": "Confines itself to some cores at",
    "threads_set": "Sets its compute threads in code",
    "loader": "Uses a DataLoader",
    "dataset": "What samples are taken from",
    "streamed": "Streams its dataset",
    "environments": "How environments are stepped",
    "helpers": "What other processes are asked for",
    "parallel": "How ranks share the model",
    "activations": "How ranks exchange activations",
    "pipeline": "Passes results on to other ranks",
    "tensor_parallel": "Tensor parallelism",
    "sync_batch_norm": "Synchronised batch norm",
    "embeddings": "Looks up embeddings",
    "object_collectives": "Exchanges pickled objects",
    "remote_calls": "Has functions run by other processes (RPC)",
    "backend": "Collective backend",
    "optimizer": "How the optimizer runs",
    "loop": "Whose training loop it is",
    "evaluation_loop": "In whose loop it evaluates",
    "logger": "Writes logs through a library",
    "convolutions": "Uses convolutions",
    "recurrent": "Uses recurrent layers",
    "watched_by": "Also watched by",
    "traced_by": "Calls at each line or call",
    "filled_at": "Memory filled with one number",
    "indexed_at": "Parts of a tensor taken one by one",
    "stopped_by": "Traced by another program",
    "uncompiled_at": "Left out by torch.compile",
}
# Before the name of a mount point, of a device, of an environment variable.
PREFIXES = {
    "mount.": "File system of {}",
    "disk.": "Disk {}",
    "disk_kind.": "Kind of disk {}",
    "env.": "{}",
}
VALUES = {
    "for the model": "what follows from the model's output",
    "for input": "input",
    "tensors": "tensors in memory",
    "arrow": "Hugging Face datasets",
    "arrow rows by number": "Hugging Face datasets, rows by number",
    "rows of a table": "rows of a table",
    "in a thread": "in a thread",
    "sparse gradients": "with sparse gradients",
    "single": "tensor by tensor",
    "multi": "several tensors at once (foreach)",
    "fused": "fused",
    "one by one": "one by one",
    "together": "together",
    "transformers": "Hugging Face Trainer",
    "lightning": "Lightning",
    "rotating": "rotating",
    "solid state": "solid state",
}
NETWORK = "{}, over the network"


def name(*, setting: str) -> str:
    prefix = next((prefix for prefix in PREFIXES if setting.startswith(prefix)), "")
    if prefix:
        return PREFIXES[prefix].format(setting.removeprefix(prefix))
    return NAMES.get(setting, setting)


def value(*, setting: str, text: str) -> str:
    if setting.startswith("mount.") and text.endswith(" network"):
        return NETWORK.format(text.removesuffix(" network"))
    return text if setting.startswith(("mount.", "env.", "disk.")) else VALUES.get(text, text)
