"""The trainer's Python: dispatch overhead, the GIL, and the cyclic garbage collector."""

from collections.abc import Iterable, Iterator

from perfdoctor.causes import GARBAGE_COLLECTION, GIL_CONTENTION, PYTHON_OVERHEAD
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import environment, thresholds
from perfdoctor.knowledge.frames import OF_A_STEP
from perfdoctor.knowledge.libraries import CELLS, MEMORY_METRICS, SHARDED
from perfdoctor.messages import Message, say
from perfdoctor.metrics.own_loops import CostlyLoop
from perfdoctor.rules.case import PASSES, Case
from perfdoctor.rules.left_on import detects_anomalies, stop_debugging, unset
from perfdoctor.rules.optimizer import fuse_optimizer
from perfdoctor.rules.rule import PROFILER_COST, Rule

_SHOWN = 2  # functions and packages


def _compiles_again(case: Case) -> bool:
    """Whether most of it is torch.compile's compiling between steps, as a trace or the trainers' stacks show."""
    compiling = max(case.number("traced_compiling") or 0.0, case.mean_of("own_recompiling"))
    return compiling >= thresholds.MOSTLY * case.share(PYTHON_OVERHEAD)


def _compiles(case: Case) -> bool:
    """Whether most of it is torch.compile's compiling, and too little of a step is seen to tell which."""
    return case.mean_of("own_compiling") >= thresholds.MOSTLY * case.share(PYTHON_OVERHEAD)


def _is_work_of_libraries(case: Case) -> bool:
    """Whether most of it is libraries at work on what the model puts out: images that are written, targets matched."""
    return (case.number("library_code") or 0.0) >= thresholds.MOSTLY


def _runs_programs(case: Case) -> bool:
    """Whether most of it is programs that the job runs and waits for, below the model's passes."""
    return case.part_of_programs(PYTHON_OVERHEAD) >= thresholds.MOSTLY


def _is_beside(case: Case) -> bool:
    """Whether most of it is tensors' arithmetic below the model's passes, and what calls for that."""
    below = sum(share for _, share in case.done_afterwards)
    return case.mean_of("own_beside") > 0 and below >= thresholds.MOSTLY * case.share(PYTHON_OVERHEAD)


def _is_own_python(case: Case) -> bool:
    """Whether most of it is the interpreter, at work on the job's own Python: torch has no part in it.

    The interpreter runs torch's modules as well; where it is known which functions of the job's own run without torch,
    they have to take so much of the time. Where none does, torch's must not be what their lines mostly call.
    """
    outside = sum(share for _, share in case.outside_torch)
    if case.outside_torch:
        known = outside >= thresholds.MOSTLY * case.share(PYTHON_OVERHEAD)
    else:
        known = case.below.get(PYTHON_OVERHEAD, {}).get("torch", 0.0) <= thresholds.MOSTLY
    return known and _own_python(case) >= thresholds.MOSTLY


def _own_python(case: Case) -> float:
    """The part of the overhead that is Python code, by its machine code or by the frames in a trace.

    Functions of the job's own that run without torch may have libraries work for them, too.
    """
    interpreter, libraries = case.number("interpreter_code") or 0.0, case.number("library_code") or 0.0
    beside = libraries + (1 - libraries) * interpreter if case.outside_torch else interpreter
    return max(beside, case.number("traced_own_code") or 0.0)


def is_outside_torch(case: Case) -> bool:
    """Whether most of it is time that a trace shows to lie outside of PyTorch, and not what is done there."""
    return (case.number("traced_outside") or 0.0) >= thresholds.MOSTLY


def _is_work_of_operators(case: Case) -> bool:
    """Whether most of it is operators that work on the host, and launch nothing for it."""
    traced = (case.number("traced_in_operator") or 0.0) >= thresholds.MOSTLY
    return traced or case.mean_of("own_on_host") >= thresholds.MOSTLY * case.share(PYTHON_OVERHEAD) > 0


def _look_outside(case: Case) -> Iterator[Advice]:
    yield advise("interpreter.record_stacks", several_ranks=len(case.trainers) > 1)
    yield from stop_debugging(case)
    yield advise("interpreter.shorten_outside")


def _work_less_in_operators(case: Case) -> Iterator[Advice]:
    updating = case.phase("optimizer") if case.mean_of("own_on_host") else 0.0
    if updating >= thresholds.MOSTLY * case.share(PYTHON_OVERHEAD):
        yield advise("optimizer.on_gpu", share=updating, used=case.number("gpu_memory_share"))
    operators = tuple(name for name, _ in case.operators.get(PYTHON_OVERHEAD, ()) if name)
    yield advise("interpreter.cheaper_operator", operator=operators[0] if operators else None)
    yield from stop_debugging(case)


def _compile_once(case: Case) -> Iterator[Advice]:
    yield advise("interpreter.compile_once")
    yield from stop_debugging(case)


def _wait_for_compiling(case: Case) -> Iterator[Advice]:
    yield advise("interpreter.wait_for_compiling")
    yield advise("interpreter.compile_once")
    yield advise("interpreter.keep_compiled")


def _say_which_libraries(case: Case) -> Message:
    others = (name for name in case.below.get(PYTHON_OVERHEAD, {}) if name not in OF_A_STEP)
    return say("interpreter.others_work", packages=tuple(others)[:_SHOWN])


def _do_it_more_rarely(case: Case) -> Iterator[Advice]:
    yield from stop_debugging(case)
    lines, share = _named_outside_torch(case)
    yield advise(
        "interpreter.more_rarely",
        lines=lines or _hot_functions(case),
        part=case.number("library_code") or 0.0,
        share=share,
    )
    yield from fuse_optimizer(case)


def _named_outside_torch(case: Case) -> tuple[tuple[str, ...], float | None]:
    """The functions that run longest without torch, and their part of the wall time; None where none is known."""
    known = [(line, share) for line, share in case.outside_torch if share >= thresholds.REPORTED_SHARE][:_SHOWN]
    return tuple(line for line, _ in known), sum(share for _, share in known) or None


def _write_cheaper_python(case: Case) -> Iterator[Advice]:
    yield from stop_debugging(case)
    if case.settings.get("environments") == "one by one":
        yield advise("helpers.step_together", line=case.hot_line(PYTHON_OVERHEAD))
    yield from _spare_own_python(case, or_else=[_hot_functions(case)])
    if case.below.get(PYTHON_OVERHEAD, {}).get("torch", 0.0) >= thresholds.TORCH_BESIDE_PYTHON:
        yield from _use_larger_operations(case)
    yield from fuse_optimizer(case)


def _hot_functions(case: Case) -> tuple[str, ...]:
    """The job's own functions that take most of the overhead; none where none stands out."""
    functions = case.python_lines.get(PYTHON_OVERHEAD, ())
    return tuple(line for line, part in functions if part >= thresholds.NAMED_FUNCTION)[:_SHOWN]


def compute_rarely(case: Case) -> Iterator[Advice]:
    """What is computed below the model's passes, but for what an agent does next."""
    line, share = next(iter(case.done_afterwards), ("", 0.0))
    if share >= thresholds.REPORTED_SHARE and not case.depends_on_steps:
        averages = line not in (*dict(case.outside_torch), *case.read_outs)  # or so it may be
        yield advise("interpreter.compute_rarely", line=line, share=share, hook=line in case.hooks, averages=averages)


def _spare_own_python(case: Case, or_else: Iterable[tuple[str, ...]] = ()) -> Iterator[Advice]:
    """What the job's own functions do without torch: more rarely where that is possible, and cheaper.

    Args:
        case: of the job.
        or_else: functions to name where none is known to run without torch.
    """
    rarely = tuple(compute_rarely(case))
    yield from rarely
    known, share = _named_outside_torch(case)
    for lines in [known] if known else or_else:
        if not (rarely and lines and lines[0] == case.done_afterwards[0][0]):
            yield advise("interpreter.cheaper_python", lines=lines, part=_own_python(case), share=share)


def _keep_program(case: Case) -> Iterator[Advice]:
    share = case.share(PYTHON_OVERHEAD) * case.part_of_programs(PYTHON_OVERHEAD)
    yield advise("interpreter.keep_program", line=case.hot_line(PYTHON_OVERHEAD) or "", share=share)
    yield from _call_less(case)


def _call_less(case: Case) -> Iterator[Advice]:
    yield from stop_debugging(case)
    yield from _spare_own_python(case)
    yield from _use_larger_operations(case)
    if (loop := case.settings.get("accumulates_at")) and not case.uses_gpu:  # there, memory is why
        yield advise("optimizer.larger_passes", loop=str(loop))
    surely = _surely_gains_by_compiling(case)
    if surely:
        yield from _compile(case)
    yield from fuse_optimizer(case)
    carrying = next((one for one in _long_loops(case) if one.carries and not one.cell), None)
    if carrying is not None and carrying.part >= thresholds.MOSTLY:
        yield advise("interpreter.several_at_once", line=carrying.line)
    else:
        yield advise("interpreter.larger_batch", loader=case.may_have_loader)
    if not surely:
        yield from _compile(case)


def _surely_gains_by_compiling(case: Case) -> bool:
    """Whether most calls can be fused: the optimizer's cannot, nor those of recurrent layers or beside the model.

    On a CPU nobody knows before, since a compiled step costs calls of its own (docs/accuracy-advice.md).
    """
    in_passes = case.phase("optimizer") <= sum(map(case.phase, PASSES))
    return case.uses_gpu and in_passes and not _is_recurrent(case) and not _is_beside(case)


def _long_loops(case: Case, cause: str = PYTHON_OVERHEAD) -> Iterator[CostlyLoop]:
    return (one for one in (case.loops or {}).get(cause, ()) if one.part >= thresholds.NAMED_LOOP)


def replace_loop(case: Case, cause: str) -> Iterator[Advice]:
    """Fewer operations, in the place of a loop of the job's own."""
    loop = next((one for one in _long_loops(case, cause) if one.cell or not one.carries), None)
    if loop is not None:
        yield _replace(loop, case.share(cause))


def _use_larger_operations(case: Case) -> Iterator[Advice]:
    """The same; where the source was not read, there may be one."""
    if case.loops is not None:
        yield from replace_loop(case, PYTHON_OVERHEAD)
        return
    called = case.called_lines.get(PYTHON_OVERHEAD, ())
    line = called[0][0] if called else case.hot_line(PYTHON_OVERHEAD)
    yield advise("interpreter.larger_operations", line=line, share=case.share(PYTHON_OVERHEAD))


def _replace(loop: CostlyLoop, whole: float) -> Advice:
    share, computes = loop.part * whole, loop.computes * whole
    if loop.cell:
        return advise("interpreter.whole_sequence", line=loop.line, cell=loop.cell, layer=CELLS[loop.cell], share=share)
    return advise("interpreter.without_loop", line=loop.line, share=share, computes=computes)


def compile_whole(case: Case) -> Iterator[Advice]:
    """What of a model that was compiled still runs operation by operation."""
    if (part := case.number("uncompiled")) is not None:
        yield advise("interpreter.whole_graph", line=str(case.settings["uncompiled_at"]), share=part)


def _compile(case: Case) -> Iterable[Advice]:
    if whole := list(compile_whole(case)):
        return whole
    if case.compiled or (case.number("in_recurrent") or 0.0) >= thresholds.MOSTLY:  # it would leave those as they are
        return []
    off = [fix for name in environment.NO_COMPILING for fix in unset(case, name, say("interpreter.compiling_is_off"))]
    sharded = case.settings.get("parallel") in SHARDED
    return off or [
        advise("interpreter.compile_model", sharded=sharded, recurrent=_is_recurrent(case), gpu=case.uses_gpu)
    ]


def _is_recurrent(case: Case) -> bool:
    """Whether the model has layers that torch.compile leaves as they are."""
    return case.settings.get("recurrent") == "yes"


def _hold_the_gil_less(case: Case) -> Iterator[Advice]:
    line = case.hot_line(GIL_CONTENTION)
    if line and MEMORY_METRICS.search(line):
        yield advise("left_on.no_memory_metrics", share=case.share(GIL_CONTENTION))
        return
    yield advise("interpreter.own_process", line=line, share=case.share(GIL_CONTENTION))
    yield advise("interpreter.rest")
    if case.settings.get("pin_thread") == "yes":
        yield advise("interpreter.fewer_tensors")


def _collect_less(case: Case) -> Iterator[Advice]:
    by_hand, line = case.number("collected_by_hand") or 0.0, case.hot_line(GARBAGE_COLLECTION)
    if by_hand >= thresholds.MOSTLY:
        yield advise("interpreter.no_call", line=line, part=by_hand)
        yield advise("interpreter.fewer_objects")
        return
    yield advise(
        "interpreter.collect_rarely", share=case.share(GARBAGE_COLLECTION), several_ranks=len(case.trainers) > 1
    )
    yield advise("interpreter.fewer_objects")
    if line:
        yield advise("interpreter.collected_by_hand", line=line)


INTERPRETER_RULES = (
    Rule(
        PYTHON_OVERHEAD,
        say("interpreter.compiling_again"),
        ("trainer_running", "traced_compiling", "traced_busy", "own_compiling", "own_recompiling"),
        _compile_once,
        say("interpreter.compiling_again_refuted"),
        applies=_compiles_again,
    ),
    Rule(
        PYTHON_OVERHEAD,
        say("interpreter.compiling"),
        ("trainer_running", "own_compiling"),
        _wait_for_compiling,
        say("interpreter.compiling_refuted"),
        applies=_compiles,
    ),
    Rule(
        PYTHON_OVERHEAD,
        say("interpreter.detecting_anomalies"),
        ("interpreter_code", "trainer_running", "trainer_cores"),
        _call_less,
        say("interpreter.detecting_anomalies_refuted"),
        applies=detects_anomalies,
    ),
    Rule(
        PYTHON_OVERHEAD,
        say("interpreter.outside"),
        ("traced_outside", "traced_busy"),
        _look_outside,
        say("interpreter.outside_refuted"),
        applies=is_outside_torch,
        clauses=lambda case: (say("interpreter.not_shown"),),
    ),
    Rule(
        PYTHON_OVERHEAD,
        say("interpreter.in_operator"),
        ("own_on_host", "traced_in_operator", "gpu_busy", "traced_busy"),
        _work_less_in_operators,
        say("interpreter.in_operator_refuted"),
        applies=_is_work_of_operators,
        clauses=lambda case: (say("interpreter.launch_nothing"),),
    ),
    Rule(
        PYTHON_OVERHEAD,
        say("interpreter.programs"),
        ("trainer_running", "trainer_cores"),
        _keep_program,
        say("interpreter.others_work_refuted"),
        applies=_runs_programs,
    ),
    Rule(
        PYTHON_OVERHEAD,
        say("interpreter.beside"),
        ("own_beside", "trainer_running", "trainer_cores"),
        _call_less,
        say("interpreter.others_work_refuted"),
        applies=_is_beside,
    ),
    Rule(
        PYTHON_OVERHEAD,
        _say_which_libraries,
        ("library_code", "interpreter_code", "trainer_running", "trainer_cores"),
        _do_it_more_rarely,
        say("interpreter.others_work_refuted"),
        applies=_is_work_of_libraries,
    ),
    Rule(
        PYTHON_OVERHEAD,
        say("interpreter.own_python"),
        ("interpreter_code", "traced_own_code", "trainer_running", "trainer_cores", "traced_operators"),
        _write_cheaper_python,
        say("interpreter.own_python_refuted"),
        applies=_is_own_python,
    ),
    Rule(
        PYTHON_OVERHEAD,
        say("interpreter.calling"),
        ("interpreter_code", "trainer_running", "trainer_cores", "traced_operators", *PROFILER_COST),
        _call_less,
        say("interpreter.calling_refuted"),
    ),
    Rule(
        GIL_CONTENTION,
        say("interpreter.waiting_for_gil"),
        ("trainer_running", "trainer_cores", "trainer_switches"),
        _hold_the_gil_less,
        say("interpreter.waiting_for_gil_refuted"),
    ),
    Rule(
        GARBAGE_COLLECTION,
        say("interpreter.collecting"),
        ("collected_by_hand", "trainer_rss"),
        _collect_less,
        say("interpreter.collecting_refuted"),
    ),
)
