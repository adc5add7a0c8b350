"""How many ranks there are and on how many hosts, and settings of what carries their exchange."""

from collections.abc import Iterator

from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import environment, thresholds
from perfdoctor.knowledge.launchers import Number, number_of
from perfdoctor.rules.case import Case

# What shows an exchange of many bytes, and one of many messages.
OF_BYTES = (
    "received", "loopback", "sent", "bytes_per_packet", "retransmits", "gpu_nvlink_received", "gpu_pcie_received",
    "traced_exposed", "traced_hidden", "traced_collectives",
)  # fmt: skip
OF_MESSAGES = (
    "packets", "bytes_per_packet", "received", "trainer_switches", "traced_exposed", "traced_hidden",
    "traced_collectives",
)  # fmt: skip


def mend_transport(case: Case) -> Iterator[Advice]:
    """Settings of the transport that are in the way."""
    for name in environment.NCCL_DETOURS:
        if case.switched_on(name):
            yield advise("transport.no_detour", name=name, value=case.variable(name))
    several_hosts = has_several_hosts(case)
    for name in environment.INTERFACE:
        if case.variable(name) == environment.LOOPBACK and several_hosts:
            yield advise("transport.fast_interface", name=name)
    if several_hosts and _leaves_fabric_idle(case):
        fabric, received = case.measured("fabric_received"), case.measured("received")
        yield advise("transport.use_fabric", fabric=fabric, received=received)
    for name in environment.NCCL_CHOICES:
        if case.variable(name):
            yield advise("transport.let_nccl_choose", name=name, value=case.variable(name))
    if (case.variable(environment.NCCL_LOG) or "").upper() == environment.EVERY_CALL:
        yield advise("transport.log_less")


def _leaves_fabric_idle(case: Case) -> bool:
    """Whether there are InfiniBand or RoCE ports, and what ranks exchange goes through other interfaces."""
    fabric, received = case.number("fabric_received"), case.number("received")
    return fabric is not None and received is not None and 0 <= fabric < thresholds.IDLE_FABRIC * received


def has_several_hosts(case: Case) -> bool:
    """Whether the launcher has started ranks on other hosts, too."""
    return (started_ranks(case) or 0) > (ranks_of_host(case) or 0) > 0


def world_size(case: Case) -> int:
    """How many ranks the launcher started, or else how many are seen."""
    return started_ranks(case) or len(case.trainers)


def started_ranks(case: Case) -> int | None:
    """How many ranks there are, as the launcher said."""
    number = _rank_number(case)
    return _read_count(case, environment.RANKS) or (number and number.world)


def ranks_of_host(case: Case) -> int | None:
    """How many of them its host has."""
    number = _rank_number(case)
    return _read_count(case, environment.RANKS_OF_HOST) or (number and number.here)


def _rank_number(case: Case) -> Number | None:
    """What the first trainer's launcher has said of its place among the ranks."""
    return number_of({name.removeprefix("env."): str(value) for name, value in case.settings.items()})


def _read_count(case: Case, name: str) -> int | None:
    """An environment variable of the job as a whole number; None if it is none."""
    value = case.variable(name)
    return int(value) if value is not None and value.isdigit() else None
