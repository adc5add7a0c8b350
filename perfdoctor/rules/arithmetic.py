"""The model's arithmetic on the CPU: less of it, cheaper, and on all cores that it may have."""

from collections.abc import Iterator
from dataclasses import replace

from perfdoctor.causes import MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import (
    ALLOCATORS,
    AUTO,
    KEEP_FREED_MEMORY,
    REPRODUCIBLE,
    forbidding_instructions,
)
from perfdoctor.knowledge.versions import FUSED_ON_CPU
from perfdoctor.messages import Message, say
from perfdoctor.metrics.names import MB
from perfdoctor.rules.case import Case
from perfdoctor.rules.cores import cores_of_arithmetic, limited_threads, sets_threads
from perfdoctor.rules.interpreter import compute_rarely
from perfdoctor.rules.neighbours import without_neighbours
from perfdoctor.rules.optimizer import OF_UPDATE, fuse_optimizer, update_share
from perfdoctor.rules.rule import Rule
from perfdoctor.rules.verdict import imbalance
from perfdoctor.timeline.amounts import Amounts


def _compute_otherwise(case: Case) -> Iterator[Advice]:
    yield from fill_the_pipeline(case)
    yield from _give_equal_work(case)
    double = case.number("double_precision") or 0.0
    if double >= thresholds.MIN_SHARE:
        unfolds = (case.number("double_unfolding") or 0.0) >= thresholds.UNFOLDING
        yield advise("arithmetic.single_precision", part=double, unfolds=unfolds)
    yield from _allow_instructions(case)
    yield from _use_onednn(case)
    yield from _reduce_at_once(case)
    yield from _pad_ffts(case)
    yield from _look_where_memory_bounds(case)
    yield from _fill_less(case)
    yield from _keep_activations(case)
    yield from _update_in_one_pass(case)
    yield from _update_touched_rows(case)
    yield from _keep_memory(case)
    yield from pad_less(case)
    yield from freeze_rest(case)
    yield from detach_unused(case)
    if not case.mean_of("own_beside"):  # it counts as the model's
        yield from compute_rarely(case)
    yield from _use_idle_cores(case)


def _allow_instructions(case: Case) -> Iterator[Advice]:
    """All instructions that the CPU has, where a variable keeps the arithmetic from some of them."""
    for name, value in forbidding_instructions(case.variable).items():
        instead = AUTO if name == REPRODUCIBLE else ""
        yield advise("arithmetic.all_instructions", name=name, value=value, instead=instead)


def _use_onednn(case: Case) -> Iterator[Advice]:
    part = case.of_running("without_onednn")
    if part >= thresholds.REPORTED_SHARE:
        yield advise("arithmetic.use_onednn", part=part)


def _reduce_at_once(case: Case) -> Iterator[Advice]:
    """Reductions of few elements each as operations on whole tensors, where torch has them number by number."""
    part = case.of_running("reducing_by_number")
    if without_neighbours(case, 2 * part) >= thresholds.REPORTED_SHARE:  # as much goes beside it, at least
        yield advise("arithmetic.reduce_at_once", part=part)


def _pad_ffts(case: Case) -> Iterator[Advice]:
    """FFTs of a length that is a product of small primes."""
    part = case.of_running("long_ffts")
    if part >= thresholds.REPORTED_SHARE:
        yield advise("arithmetic.pad_ffts", part=part)


def _look_where_memory_bounds(case: Case) -> Iterator[Advice]:
    """Operations over whole tensors made to one pass, in the function that they take most in."""
    for line, share in case.whole_tensors[:1]:
        if without_neighbours(case, share) >= thresholds.MIN_SHARE and not case.compiled:
            yield advise("arithmetic.memory_bound", line=line, share=share)


def _fill_less(case: Case) -> Iterator[Advice]:
    """Fewer zeros: parts of a tensor that are taken at once have one gradient, and what is filled can be kept."""
    if (filling := case.of_running("filling")) >= thresholds.REPORTED_SHARE:
        yield advise("arithmetic.fill_less", line=str(case.settings.get("filled_at", "")), share=filling)
    if (clearing := case.of_running("clearing")) >= thresholds.REPORTED_SHARE:
        yield advise("arithmetic.drop_gradients", share=clearing)
    place, zeros = case.settings.get("indexed_at"), case.of_running("gradients_of_zeros")
    if zeros >= thresholds.REPORTED_SHARE and (place or case.settings.get("embeddings") != "yes"):
        yield advise("arithmetic.take_parts_at_once", line=str(place or ""), share=zeros)


def _keep_activations(case: Case) -> Iterator[Advice]:
    """Activations kept instead of computed again, where memory has room for them."""
    again, there, free = case.mean_of("own_recomputing"), case.setting("memory_bytes"), case.number("memory_available")
    if again >= thresholds.REPORTED_SHARE:
        confined = case.setting("memory_limit_bytes") is not None  # how much of that is in use is not measured
        used = None if confined or not there or free is None else 1 - free * MB / there
        full = used is None or used > thresholds.FULL_MEMORY
        yield advise("arithmetic.keep_activations", again=again, used=used, full=full, loop=case.loop)


def _update_in_one_pass(case: Case) -> Iterator[Advice]:
    """A fused optimizer, which goes over the parameters' memory once, where its arithmetic takes much of the time."""
    one_pass = case.uses_gpu or case.has_torch(FUSED_ON_CPU)
    if one_pass and case.settings.get("update") in OF_UPDATE and _of_update(case) >= thresholds.OPTIMIZER_SHARE:
        yield from fuse_optimizer(case)


def _update_touched_rows(case: Case) -> Iterator[Advice]:
    """Sparse gradients of embeddings, where the update's arithmetic takes much of the time.

    How large the tables are is not seen: of layers, the update takes less than what they compute. Ranks would have to
    exchange such gradients in another way.
    """
    update, alone = _of_update(case), len(case.trainers) == 1
    zeros = 0.0 if "indexed_at" in case.settings else case.of_running("gradients_of_zeros")  # or those are of the parts
    if case.settings.get("embeddings") == "yes" and alone and not case.loop and update + zeros >= thresholds.OF_TABLES:
        yield advise("optimizer.sparse_tables", share=update, zeros=zeros)


def _of_update(case: Case) -> float:
    """The arithmetic of the optimizer's step, in parts of the wall time."""
    return update_share(case) - case.mean_of("own_updating") - case.mean_of("own_copying")


def pad_less(case: Case) -> Iterator[Advice]:
    """Batches that are padded to their longest text, where the source pads every text to one length."""
    place = case.settings.get("pads_all")
    if place:
        yield advise("arithmetic.pad_less", place=str(place))


def freeze_rest(case: Case) -> Iterator[Advice]:
    """No gradients for what is not trained, where the optimizer is given a part of the model only."""
    place = case.settings.get("trains_part")
    backward = None if case.uses_gpu else case.phase("backward")  # on a GPU it goes on while the host does other things
    if place and (backward is None or backward >= thresholds.REPORTED_SHARE):
        yield advise("arithmetic.freeze_rest", place=str(place), backward=backward)


def detach_unused(case: Case) -> Iterator[Advice]:
    """No gradients in a pass after which they are cleared before anybody has used them, or that nobody ever uses."""
    place, module = str(case.settings.get("unused_pass", "")), case.settings.get("untrained")
    part = None if case.uses_gpu else case.number("unused_pass")
    if module:
        yield advise("arithmetic.freeze_untrained", place=place, part=part, module=str(module))
    elif place:
        yield advise("arithmetic.detach_unused", place=place, part=part)


def _keep_memory(case: Case) -> Iterator[Advice]:
    """Freed memory kept for the next step, where nothing keeps it yet; pages copied after a fork are not fresh."""
    part = (case.number("fresh_memory") or 0.0) - (case.mean_of("own_copying") or 0.0)
    preloaded = case.variable("LD_PRELOAD") or ""
    keeps = any(name in preloaded for name in ALLOCATORS) or any(map(case.variable, KEEP_FREED_MEMORY))
    if without_neighbours(case, part) >= thresholds.MIN_SHARE and not keeps:
        yield advise("arithmetic.keep_memory", part=part, variables=tuple(KEEP_FREED_MEMORY.items()))


def _give_equal_work(case: Case) -> Iterator[Advice]:
    """The same work for all ranks, where they wait for those that have more of it: for one, or by turns."""
    if not is_unequal(case) or is_pipeline(case):
        return
    waits = Amounts.summed(trainer.waited_for for trainer in case.trainers)
    rank = next((rank for rank, waited in waits.items() if waited >= thresholds.STRAGGLER * waits.total), None)
    yield advise("arithmetic.equal_work", rank=rank, share=imbalance(case.late))


def _use_idle_cores(case: Case) -> Iterator[Advice]:
    """More threads for the arithmetic, where their number is limited although cores are idle."""
    cores, used, threads = case.setting("cores"), case.number("job_cores"), limited_threads(case)
    if cores is None or used is None or threads is None:
        return
    idle = cores - used - (case.number("neighbour_cores") or 0.0)
    more = int(cores_of_arithmetic(case, cores)) // max(1, len(case.trainers))
    large = case.share(MODEL_COMPUTE) >= threads * case.share(PYTHON_OVERHEAD)  # there is work for more; see the gain
    if idle >= thresholds.IDLE_CORES and more > threads and large and _uses_pool(case, threads):
        in_code = sets_threads(case)
        yield advise("arithmetic.more_threads", more=more, threads=threads, in_code=in_code, idle=idle, cores=cores)


def _uses_pool(case: Case, threads: int) -> bool:
    """Whether the threads that a trainer's arithmetic has are at work: more of them do not help where they are not."""
    main, cores = case.number("trainer_running"), case.number("trainer_cores")
    if threads == 1:
        return True
    return main is not None and cores is not None and cores >= thresholds.POOL_AT_WORK * threads * main


def fill_the_pipeline(case: Case) -> Iterator[Advice]:
    """For ranks that pass on what they compute, and wait for those that compute."""
    if is_pipeline(case) and is_unequal(case):
        way = str(case.settings.get("parallel", ""))
        yield advise("gpu.more_micro_batches", waiting=imbalance(case.late), way=way)


def is_pipeline(case: Case) -> bool:
    """Whether ranks have layers of their own, each as a stage: they wait for each other by turns."""
    return case.settings.get("pipeline") == "yes"


def is_unequal(case: Case) -> bool:
    """Whether ranks wait for those that have more to do: the work is to be spread before it is to be cheaper."""
    return without_neighbours(case, imbalance(case.late)) >= thresholds.MIN_SHARE


def _how_little_multiplies(case: Case) -> Iterator[Message]:
    """That most of the arithmetic is as fast as memory is: it is worth a look, whatever the model."""
    part = case.number("multiplying")
    if part is not None and part < thresholds.MOSTLY:
        yield say("arithmetic.little_multiplied", part=part)


def _how_long_they_wait(case: Case) -> tuple[Message, ...]:
    return (say("arithmetic.unequal", share=imbalance(case.late)),)


_COMPUTING = Rule(
    MODEL_COMPUTE,
    say("arithmetic.computing"),
    (
        "trainer_running",
        "trainer_cores",
        "job_cores",
        "multiplying",
        "reducing_by_number",
        "long_ffts",
        "without_onednn",
        "gradients_of_zeros",
        "filling",
        "clearing",
        "traced_operators",
        "own_recomputing",
    ),
    _compute_otherwise,
    say("arithmetic.computing_refuted"),
    remarks=_how_little_multiplies,
)
ARITHMETIC_RULES = (
    replace(
        _COMPUTING,
        refuted_by=say("arithmetic.unequal_refuted"),
        applies=is_unequal,
        clauses=_how_long_they_wait,
    ),
    _COMPUTING,
)
