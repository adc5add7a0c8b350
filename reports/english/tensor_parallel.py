"""Ranks that share each layer: tensor parallelism, and what it exchanges."""

from perfdoctor.diagnosis import Fix


def activations() -> str:
    return "Exchanging the activations of layers that ranks share"


def activations_refuted() -> str:
    return (
        "Run some steps with half as many samples: activations are half as large then. If the exchange takes as long "
        "as before, it is not their bytes."
    )


def small_activations() -> str:
    return "Exchanging small activations of layers that ranks share"


def small_activations_refuted() -> str:
    return (
        "Run some steps with twice as many samples: there are as many messages. If the exchange takes twice as long, "
        "it is not their number."
    )


def split_within_host(*, ranks: int) -> Fix:
    return Fix(
        "Split layers within each host only",
        "Ranks that share a layer (tensor parallelism) exchange activations in each layer, forward and backward, and "
        "nothing hides that: between hosts it waits for the network.",
        f"""\
mesh = init_device_mesh('cuda', (hosts, {ranks}), mesh_dim_names=('data', 'tensor'))
torch.distributed.tensor.parallel.parallelize_module(model, mesh['tensor'], plan)
fully_shard(model, mesh=mesh['data'])""",
    )


def smaller_groups(*, world: int, trains: bool) -> Fix:
    half = world // 2
    if half > 1:
        change = f"""\
mesh = init_device_mesh(device, (2, {half}), mesh_dim_names=('data', 'tensor'))
torch.distributed.tensor.parallel.parallelize_module(model, mesh['tensor'], plan)
"""
        change += "fully_shard(model, mesh=mesh['data'])  " if trains else ""
        change += "# each of both groups gets samples of its own"
    else:
        change = "model = DistributedDataParallel(model)  " if trains else ""
        change += "# without parallelize_module; each rank gets samples of its own"
    passes = ", forward and backward, and accumulating gradients saves none of that" if trains else ""
    gradients = ", which exchange gradients once per step, beside the backward pass" if trains else ""
    return Fix(
        "Share layers among fewer ranks",
        f"Each layer waits for its activations{passes}. Fewer ranks for each layer exchange less; the batch is split "
        f"between their groups{gradients}. Each rank needs memory for a larger part of the model.",
        change,
    )


def half_precision(*, trains: bool) -> Fix:
    call = "loss = criterion(model(inputs), targets)" if trains else "outputs = model(inputs)"
    return Fix(
        "Exchange activations in 16 bits",
        "Where they are float32 now: half the bytes, and matrix products in 16 bits too.",
        f"with torch.autocast(device.type, dtype=torch.bfloat16):\n    {call}",
    )


def larger_batch() -> Fix:
    return Fix(
        "Let each exchange carry more samples",
        "Each layer waits for a round of messages, however few samples it has: twice as many in a batch, and half as "
        "many batches, need half of the rounds.",
        "batch_size *= 2  # where gradients are accumulated: half as many passes, and an update stays what it was",
    )
