"""What is wrong with host, GPUs or fabric, as far as it costs the job time."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.english.phrases import amount, counted, percent


def mend_pcie(*, link: float) -> Fix:
    return Fix(
        "Give the GPU its full PCIe link back",
        f"Under load the link has {percent(link)} of the bandwidth that GPU and host are capable of: it has lost lanes "
        "or speed, and copies take longer in proportion.",
        "nvidia-smi -q -d PCIE   # 'Link Width' and 'Generation', current against max, while the job runs\n"
        "# reseat the card or its riser, look for a BIOS setting of the slot, or move the job to another GPU",
    )


def mend_pcie_errors(*, replays: Evidence) -> Fix:
    return Fix(
        "Have the GPU's PCIe link looked at",
        f"Packets are sent again at {amount(replays)}: the link makes errors, and copies wait for the repetition.",
        "nvidia-smi -q -d PCIE | grep -i replay   # growing while the job runs; reseat the card, or use another GPU",
    )


def mend_nvlink(*, down: float) -> Fix:
    return Fix(
        "Bring NVLink back up on all GPUs",
        f"On one GPU {percent(down)} of the links are down that are up on another GPU of the job; a collective is as "
        "fast as its slowest member.",
        "nvidia-smi nvlink --status   # reset or exchange the GPU with fewer links, or leave it out of the job",
    )


def mend_nvlink_errors(*, errors: Evidence) -> Fix:
    return Fix(
        "Have NVLink looked at",
        f"Transfers are repeated or arrive with wrong checksums at {amount(errors)}.",
        "nvidia-smi nvlink --errorcounters   # which link; reset the GPU, exchange cable or baseboard",
    )


def mend_fabric_link(*, link: float) -> Fix:
    return Fix(
        "Give all ports of the fabric their full speed",
        f"A port in use has {percent(link)} of the speed of another one on an adapter of the same "
        "make, and the slowest port sets the pace of a collective.",
        "ibstat; iblinkinfo",
    )


def mend_fabric(*, errors: Evidence) -> Fix:
    return Fix(
        "Have the fabric's links looked at",
        f"InfiniBand or RoCE ports of this host count errors or send again at {amount(errors)}.",
        "ibstat; perfquery -x   # which port; on RoCE: ethtool -S INTERFACE | grep -E 'pause|discard|cnp'\n"
        "# exchange cable or transceiver, or leave this host out of the job",
    )


def replace_gpu(*, errors: Evidence | None, repairs: float) -> Fix:
    found = [f"it reported {amount(errors)} of the driver (Xid) while it was watched"] if errors else []
    found += [f"{counted(repairs, 'memory repair')} pending or failed"] if repairs else []
    return Fix(
        "Take the faulty GPU out of the job",
        f"A GPU of this job is faulty ({' and '.join(found)}), and may not keep pace with the others.",
        "nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT; dmesg | grep -i xid   # reset it, or exclude it with "
        "CUDA_VISIBLE_DEVICES",
    )


def bind_near_gpu(*, away: float, distance: float | None) -> Fix:
    far = f", {distance:.2g} times as far from it as its own" if distance else ""
    return Fix(
        "Run each rank on the NUMA node of its GPU",
        f"The trainer's main thread ran on another node than its GPU's for {percent(away)} of the time{far}: launches "
        "and copies cross the link between the nodes, and so does pinned memory that is first written there.",
        "nvidia-smi topo -m                                        # 'NUMA Affinity' of each GPU\n"
        "numactl --cpunodebind=NODE --membind=NODE python train.py   # one per rank; torchrun: --numa-binding=node",
    )


def raise_core_clock(*, below: float | None, hot: float | None) -> Fix:
    found = [f"run {percent(below)} below the clock that they can all keep"] if below else []
    found += [f"are held back by heat for {percent(hot)} of the time"] if hot else []
    return Fix(
        "Let the cores run at their full clock",
        f"The job's cores {' and '.join(found)}.",
        "cpupower frequency-set -g performance   # the governor; else power limits of the BIOS, or cooling",
    )


def leave_host(*, stolen: float) -> Fix:
    return Fix(
        "Move to a host that is not oversubscribed",
        f"The hypervisor gives {percent(stolen)} of the CPU time that this machine wants to others.",
        "# an instance with dedicated cores, or of a type without CPU credits",
    )


def give_memory(*, stalled: float | None, hits: Evidence | None, limit: float | None) -> Fix:
    if stalled is not None:
        why = f"Tasks of its control group wait for memory for {percent(stalled)} of the time."
    else:
        why = f"Allocations run into its control group's limit at {amount(hits)}." if hits else ""
    most = f" The limit is {limit / 1e9:.3g} GB." if limit else ""
    return Fix(
        "Give the job more memory, or let it need less",
        f"{why}{most} The kernel then reclaims pages that are read again soon after.",
        "# raise --memory, the pod's limit or --mem; else fewer workers, a smaller prefetch_factor",
    )


def defer_compaction(*, stalls: Evidence) -> Fix:
    return Fix(
        "Have huge pages assembled in the background",
        f"Allocations wait while memory is compacted for a huge page, at {amount(stalls)}.",
        "echo defer+madvise | sudo tee /sys/kernel/mm/transparent_hugepage/defrag",
    )
