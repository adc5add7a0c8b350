"""Between ranks: bytes, latency, DataParallel, and ranks that were not seen."""

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.exchange import fewer_bytes, fewer_messages, world_size
from perfdoctor.rules.finding import REPORTED, finding
from perfdoctor.rules.sharing import held_up_by_kernels, sharing_costs
from perfdoctor.rules.wording import percent, takes


def bandwidth(case: Case) -> Finding | None:
    """All ranks are in the collective and move bytes."""
    cause = "communication.bandwidth"
    if case.share(cause) < REPORTED:
        return None
    return finding(
        case,
        cause,
        takes(case, cause, "Moving data between ranks") + sharing_costs(case, cause),
        (
            "received", "loopback", "sent", "bytes_per_packet", "retransmits", "gpu_nvlink_received",
            "gpu_pcie_received", "traced_exposed", "traced_hidden", "traced_collectives", "traced_behind",
            "traced_held_up", "traced_bus_alone", "traced_bus_behind", "traced_beside",
        ),
        [*held_up_by_kernels(case, cause), *fewer_bytes(case, cause)],
        "Run some steps under model.no_sync(): if they take as long as before, the exchange is not the cause.",
    )


def latency(case: Case) -> Finding | None:
    """Many small collectives."""
    cause = "communication.latency"
    if case.share(cause) < REPORTED:
        return None
    return finding(
        case,
        cause,
        takes(case, cause, "Exchanging many small messages between ranks"),
        (
            "packets", "bytes_per_packet", "received", "trainer_switches", "traced_exposed", "traced_hidden",
            "traced_collectives",
        ),
        fewer_messages(case, cause),
        "Send ten times the bytes in each exchange: if a step takes nearly as long as before, the number of "
        "exchanges costs; if it takes ten times as long, the bytes do.",
    )


def data_parallel(case: Case) -> Finding | None:
    """``nn.DataParallel``'s scatter, replicate and gather in one process."""
    cause = "communication.data_parallel"
    if case.share(cause) < REPORTED:
        return None
    gpus = case.number("gpus")
    fixes = [
        Fix(
            "Use DistributedDataParallel",
            "nn.DataParallel copies the model to every GPU in each step and runs "
            f"{f'all {gpus:g} GPUs' if gpus else 'all GPUs'} from one Python process.",
            f"torchrun --nproc-per-node={f'{gpus:g}' if gpus else 'gpu'} train.py\n"
            "# in train.py: init_process_group('nccl'); model = "
            "DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])",
        )
    ]
    return finding(
        case,
        cause,
        takes(case, cause, "nn.DataParallel's scatter, replicate and gather"),
        ("gpus", "gpu_busy", "trainer_running", "gpu_nvlink_received", "gpu_pcie_received"),
        fixes,
        "Run on one GPU without nn.DataParallel: if the samples per second fall in proportion, it did no "
        "harm.",
    )


def unattributed_wait(case: Case) -> Finding | None:
    """Waiting for a rank that was not observed."""
    cause = "communication.unattributed_wait"
    if case.share(cause) < REPORTED:
        return None
    world, seen = world_size(case), len(case.trainers)
    missing = (
        f"{seen} of {world} ranks were watched"
        if world is not None and world > seen
        else f"{seen} ranks were watched"
    )
    fixes = [
        Fix(
            "Watch the other ranks too",
            f"The watched ranks wait in collectives for {percent(case.share(cause))} of the time, and "
            f"{missing}: one that was not may be late, or the exchange itself slow.",
            "perfdoctor attach PID   # on each host, at the same time; of traces: perfdoctor analyze FOLDER",
        )
    ]
    return finding(
        case,
        cause,
        takes(case, cause, "Waiting for ranks that were not watched"),
        (
            "received", "sent", "traced_exposed", "traced_hidden", "traced_collectives", "traced_behind",
            "traced_held_up",
        ),
        fixes,
        "Watch all ranks: if none of them is late, the exchange itself takes the time.",
    )


COMMUNICATION_RULES = (bandwidth, latency, data_parallel, unattributed_wait)
