"""Collectives and kernels that share a GPU and hold each other up."""

from perfdoctor.diagnosis import Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.finding import REPORTED, freed
from perfdoctor.rules.wording import amount, percent

# Of a share, so much must be due to sharing the GPU to be what it is about.
_MOST = 0.5
_FEWER_CHANNELS = """\
NCCL_MAX_CTAS=8 torchrun ...  # older NCCL: NCCL_MAX_NCHANNELS=8; recent NCCL: NCCL_CTA_POLICY=1 takes as few as suffice
# or for one process group:
options = torch.distributed.ProcessGroupNCCL.Options(); options.config.max_ctas = 8
torch.distributed.init_process_group('nccl', pg_options=options)"""
_PRIORITY = """\
options = torch.distributed.ProcessGroupNCCL.Options(is_high_priority_stream=True)
torch.distributed.init_process_group('nccl', pg_options=options)"""
_ELSEWHERE = Fix(
    "Move the overlap",
    "A collective that begins earlier, or beside kernels that leave multiprocessors and memory bandwidth free, has "
    "more time and disturbs less.",
    "DistributedDataParallel(model, bucket_cap_mb=...)  # smaller buckets begin earlier\n"
    "block.set_modules_to_backward_prefetch([next_block])  # fully_shard",
)


def fewer_channels(case: Case) -> list[Fix]:
    """For kernels that take longer beside collectives."""
    longer, times = case.number("traced_lengthened"), case.number("traced_beside")
    if longer is None or times is None or longer < REPORTED:
        return []
    step = amount(case, "traced_lengthened_step")
    why = (
        f"Beside collectives kernels take {times:.2g} times as long as the same ones alone: {percent(longer)} of the "
        f"time{f', {step} of each step' if step else ''}. Each channel of a collective occupies a multiprocessor, and "
        f"all of them memory bandwidth.{_network(case)}"
    )
    return [Fix("Give collectives fewer multiprocessors", why, _FEWER_CHANNELS, freed(longer)), _ELSEWHERE]


def held_up_by_kernels(case: Case, cause: str) -> list[Fix]:
    """For collectives that are long because kernels run beside them, and not because of the network."""
    saved, times = case.number("traced_held_up"), case.number("traced_behind")
    if saved is None or times is None or saved < _MOST * case.share(cause):
        return []
    saved = min(saved, case.share(cause))
    why = (
        f"Behind kernels collectives take {times:.2g} times as long as the same ones alone, which costs "
        f"{percent(saved)} of the time.{_network(case)} A faster network would not help."
    )
    return [Fix("Give collectives a stream of high priority", why, _PRIORITY, freed(saved)), _ELSEWHERE]


def sharing_costs(case: Case, cause: str) -> str:
    """Sentences for a finding about the transfer in collectives; "" where they do not suffer from kernels."""
    if not held_up_by_kernels(case, cause):
        return ""
    return f" Most of that is because kernels run beside the collectives.{_network(case)}"


def _network(case: Case) -> str:
    """What the network gives to a collective by itself, where kernels are what makes it slow."""
    alone, behind = amount(case, "traced_bus_alone"), amount(case, "traced_bus_behind")
    if not alone or not behind:
        return ""
    return f" The network is not to blame: it carries {alone} of a collective alone, and {behind} behind kernels."
