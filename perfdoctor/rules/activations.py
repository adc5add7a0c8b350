"""Ranks that share each layer exchange activations, in each forward and backward pass: added up, or all to all."""

from collections.abc import Iterator

from perfdoctor.causes import BANDWIDTH, LATENCY
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge.libraries import ALL_TO_ALL
from perfdoctor.messages import Message, say
from perfdoctor.rules.case import Case
from perfdoctor.rules.communication import exchange_rarely
from perfdoctor.rules.rule import Rule
from perfdoctor.rules.transport import (
    OF_BYTES,
    OF_MESSAGES,
    has_several_hosts,
    mend_transport,
    ranks_of_host,
    world_size,
)


def _exchanges_activations(case: Case) -> bool:
    return "activations" in case.settings


def _sends_all_to_all(case: Case) -> bool:
    return case.settings.get("activations") == ALL_TO_ALL


def _say_activations(case: Case) -> Message:
    return say("all_to_all.activations") if _sends_all_to_all(case) else say("tensor_parallel.activations")


def _say_small_activations(case: Case) -> Message:
    return say("all_to_all.small_activations") if _sends_all_to_all(case) else say("tensor_parallel.small_activations")


def _send_fewer_bytes(case: Case) -> Iterator[Advice]:
    yield from exchange_rarely(case, BANDWIDTH)
    yield from _share_otherwise(case)
    if case.uses_gpu:  # cores rarely multiply faster in 16 bits
        yield advise("tensor_parallel.half_precision", trains=case.trains)


def _send_fewer_messages(case: Case) -> Iterator[Advice]:
    yield from exchange_rarely(case, LATENCY)
    yield from _share_otherwise(case)
    yield advise("tensor_parallel.larger_batch")


def _share_otherwise(case: Case) -> Iterator[Advice]:
    yield from mend_transport(case)
    if _sends_all_to_all(case):
        yield from _divide_otherwise(case)
    elif has_several_hosts(case):
        yield advise("tensor_parallel.split_within_host", ranks=ranks_of_host(case))
    else:
        yield advise("tensor_parallel.smaller_groups", world=world_size(case), trains=case.trains)


def _divide_otherwise(case: Case) -> Iterator[Advice]:
    """Experts, tables or sequences that are divided among ranks."""
    if has_several_hosts(case):
        yield advise("all_to_all.within_host", ranks=ranks_of_host(case), trains=case.trains)
    else:
        yield advise("all_to_all.smaller_groups", world=world_size(case), trains=case.trains)
    yield advise("all_to_all.compute_meanwhile")


ACTIVATION_RULES = (
    Rule(
        BANDWIDTH,
        _say_activations,
        OF_BYTES,
        _send_fewer_bytes,
        say("tensor_parallel.activations_refuted"),
        applies=_exchanges_activations,
    ),
    Rule(
        LATENCY,
        _say_small_activations,
        OF_MESSAGES,
        _send_fewer_messages,
        say("tensor_parallel.small_activations_refuted"),
        applies=_exchanges_activations,
    ),
)
