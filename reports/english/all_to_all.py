"""Experts, embedding tables or sequences that are divided among ranks, which send activations all to all."""

from perfdoctor.diagnosis import Fix


def activations() -> str:
    return "Sending activations to the ranks that need them (all to all)"


def small_activations() -> str:
    return "Sending small activations to the ranks that need them (all to all)"


def within_host(*, ranks: int, trains: bool) -> Fix:
    return Fix(
        "Keep what is sent all to all within each host",
        "Experts, tables or sequences that are divided among all ranks send most of their activations to other hosts, "
        "in each layer, and nothing hides that. Divided among the ranks of a host they stay there; each host then has "
        "all of them.",
        f"""\
mesh = init_device_mesh('cuda', (hosts, {ranks}), mesh_dim_names=('data', 'divided'))
torch.distributed.all_to_all_single(received, sent, group=mesh.get_group('divided')){_averaged(trains)}""",
    )


def smaller_groups(*, world: int, trains: bool) -> Fix:
    half = world // 2
    if half > 1:
        change = f"""\
mesh = init_device_mesh(device, (2, {half}), mesh_dim_names=('data', 'divided'))
torch.distributed.all_to_all_single(received, sent, group=mesh.get_group('divided')){_averaged(trains)}"""
    else:
        change = "model = DistributedDataParallel(model)  " if trains else ""
        change += "# each rank has all experts, tables and positions: nothing is sent all to all"
    return Fix(
        "Divide experts, tables or sequences among fewer ranks",
        "A rank keeps the part of its activations that it needs itself, and sends the rest: the fewer ranks share, the "
        "less that is. Each rank needs memory for more of them.",
        change,
    )


def _averaged(trains: bool) -> str:
    return "\n# gradients of what is divided: averaged over mesh['data'] only" if trains else ""


def compute_meanwhile() -> Fix:
    return Fix(
        "Compute something else while activations are sent",
        "What does not need what is being sent can be computed meanwhile: a shared expert or layer, or the other half "
        "of the batch.",
        "work = torch.distributed.all_to_all_single(received, sent, async_op=True)\n"
        "besides = shared(inputs)  # needs nothing of received\n"
        "work.wait()",
    )
