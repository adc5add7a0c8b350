"""The trainer's Python: dispatch overhead, the interpreter lock and the cyclic collector."""

from perfdoctor.diagnosis import Finding, Fix
from perfdoctor.rules.case import Case
from perfdoctor.rules.finding import REPORTED, finding
from perfdoctor.rules.lookups import hot_line, switched_on
from perfdoctor.rules.wording import percent, takes, twice_the_batch, unset

# From this share of the step an optimizer is worth a fix of its own (catalogue CPU-13: 15 to 20 %).
_OPTIMIZER = 0.15
_DEBUG_SWITCHES = (
    ("TORCH_DISTRIBUTED_DEBUG", "Its DETAIL level checks every collective against all ranks."),
    ("PYTHONDEVMODE", "The interpreter then checks memory, warnings and more at every step."),
    ("PYTHONTRACEMALLOC", "Every allocation of Python is then traced."),
    ("PYTORCH_JIT_LOG_LEVEL", "Logging of the compiler costs time in every call."),
)

# Of the overhead, the part spent on formatting tracebacks from which something formats them all the time.
_TRACED = 0.05
_NO_ANOMALY_MODE = Fix(
    "Turn anomaly detection off",
    "Tracebacks are formatted all the time, as autograd's anomaly detection does for every operator of the forward "
    "pass; it also looks for NaN in every gradient.",
    "torch.autograd.set_detect_anomaly(False)  # Lightning: Trainer(detect_anomaly=False)",
)


def debug_fixes(case: Case) -> list[Fix]:
    """Takes away switches for debugging that slow down every call."""
    fixes = [fix for name, why in _DEBUG_SWITCHES for fix in unset(case, name, why)]
    fixes = [fix for fix in fixes if "TORCH_DISTRIBUTED_DEBUG" not in fix.title or _is_detail(case)]
    below = case.below.get("cpu.python_overhead", {})
    traced = sum(below.get(package, 0.0) for package in ("traceback", "linecache"))
    return [_NO_ANOMALY_MODE, *fixes] if traced >= _TRACED else fixes


def _is_detail(case: Case) -> bool:
    return str(case.settings.get("env.TORCH_DISTRIBUTED_DEBUG", "")).upper() == "DETAIL"


def optimizer_fixes(case: Case) -> list[Fix]:
    """A fused optimizer, where the optimizer's own share of the step is large."""
    shares = [trainer.phases.get("optimizer", 0.0) for trainer in case.trainers]
    share = sum(shares) / len(shares) if shares else 0.0
    if share < _OPTIMIZER:
        return []
    return [
        Fix(
            "Update all parameters in one call",
            f"The optimizer takes {percent(share)} of the time; by default it runs several operators for "
            "each parameter.",
            "torch.optim.AdamW(model.parameters(), lr=lr, fused=True)  # also Adam, SGD and Adagrad",
        )
    ]


def _larger_batch(case: Case) -> Fix:
    return Fix(
        "Use a larger batch",
        "The number of calls per step stays the same while each computes more.",
        f"{twice_the_batch(case)}  # and check that the loss still falls as before",
    )


_COMPILE = Fix(
    "Compile the model",
    "A compiled model runs many small operators as few large ones, without Python between them.",
    "model = torch.compile(model)",
)


# Of the overhead; then the rest of it is not worth advice of its own.
_MOSTLY = 0.5
# Of the time in the job's own Python, a function with this part is named; and of the overhead, the part under torch's
# own frames from which fewer operations are worth advice too.
_NAMED, _MOST_NAMED = 0.25, 2
_ALSO = 0.4
_COMPILE_ONCE = Fix(
    "Keep torch.compile from compiling again",
    "A compiled model holds for the shapes and values that it was compiled for; for others it is compiled anew.",
    "torch._dynamo.mark_dynamic(batch, 0)      # or torch.compile(model, dynamic=True), or pad to a few sizes\n"
    "TORCH_LOGS=recompiles python train.py     # tells what differed each time",
)


def python_overhead(case: Case) -> Finding | None:
    """Interpreter and operator dispatch in the trainer."""
    cause = "cpu.python_overhead"
    if case.share(cause) < REPORTED:
        return None
    if _compiling(case) >= _MOSTLY * case.share(cause):
        return _recompilation(case, cause)
    if (case.number("library_code") or 0.0) >= _MOSTLY:
        return _others_work(case, cause)
    if (case.number("interpreter_code") or 0.0) >= _MOSTLY:
        return _own_python(case, cause)
    fixes = [*debug_fixes(case), _larger_operations(case, cause)]
    if not switched_on(case, "TORCH_COMPILE_DISABLE") and not switched_on(case, "TORCHDYNAMO_DISABLE"):
        fixes.append(_COMPILE)
    else:
        for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
            fixes += unset(case, name, "It turns torch.compile off, which would merge small operators.")
    fixes += optimizer_fixes(case)
    fixes.append(_larger_batch(case))
    return finding(
        case,
        cause,
        takes(case, cause, "Calling operations (interpreter and dispatch)"),
        ("interpreter_code", "trainer_running", "trainer_cores", "traced_operators"),
        fixes,
        "Double the batch size: if a step then takes nearly twice as long, the time goes into arithmetic, "
        "not into calls.",
    )


def _larger_operations(case: Case, cause: str) -> Fix:
    line = hot_line(case, cause)
    return Fix(
        f"Use fewer, larger operations{f' at {line}' if line else ''}",
        f"{percent(case.share(cause))} of the time goes into calling operations instead of computing: "
        "each call costs some microseconds, however little it computes.",
        "Where there is a loop over elements, samples or parameters: one tensor operation in its place (torch.stack, "
        "torch.where, index_add_, torch._foreach_*).",
    )


def _most_of_its_lines(case: Case, cause: str) -> str:
    """The job's own lines that take most of a cause, "" where none stands out."""
    lines = [line for line, part in case.python_lines.get(cause, ()) if part >= _NAMED]
    return " and ".join(lines[:_MOST_NAMED])


def _others_work(case: Case, cause: str) -> Finding:
    """Most of it is libraries at work on what the model puts out: images that are written, targets that are matched."""
    lines = _most_of_its_lines(case, cause)
    packages = [name for name in case.below.get(cause, {}) if name not in ("", "torch", "python")][:_MOST_NAMED]
    named = f" ({', '.join(packages)})" if packages else ""
    return finding(
        case,
        cause,
        takes(case, cause, f"Work of other libraries{named} beside the model"),
        ("library_code", "interpreter_code", "trainer_running", "trainer_cores"),
        [
            *debug_fixes(case),
            Fix(
                f"Do less, or do it more rarely, at {lines or 'the code that calls them'}",
                f"{percent(case.number('library_code') or 0.0)} of what runs around the arithmetic is neither torch "
                "nor Python's interpreter. Compiling the model or a larger batch would not change it.",
                "if step % 100 == 0: ...           # images, plots and metrics are rarely needed at each step\n"
                "pool.submit(work, arrays)         # pool = ProcessPoolExecutor(1): what the step need not wait for",
            ),
            *optimizer_fixes(case),
        ],
        "Leave that work out for some steps: if the pace stays the same, it is not what holds the job up.",
    )


def _own_python(case: Case, cause: str) -> Finding:
    """Most of the overhead is the interpreter, at work on the job's own Python: torch has no part in it."""
    lines = _most_of_its_lines(case, cause)
    part = percent(case.number("interpreter_code") or 0.0)
    fixes = [
        *debug_fixes(case),
        Fix(
            f"Make {lines or 'the Python code of the step'} cheaper",
            f"{part} of what runs around the arithmetic is Python's interpreter and not torch: code of the job's own, "
            "step by step. Compiling the model or a larger batch would not change it.",
            "Put loops into NumPy or tensor operations, keep results that are computed again and again, do it more "
            "rarely, or do it beside training: ProcessPoolExecutor(1).submit(work, plain_data)",
        ),
    ]
    if case.below.get(cause, {}).get("torch", 0.0) >= _ALSO:
        fixes.append(_larger_operations(case, cause))
    return finding(
        case,
        cause,
        takes(case, cause, "Python code in the training step"),
        ("interpreter_code", "trainer_running", "trainer_cores", "traced_operators"),
        [*fixes, *optimizer_fixes(case)],
        "Leave that code out for some steps, or let it return a constant: if the pace stays the same, it is not what "
        "holds the job up.",
    )


def _compiling(case: Case) -> float:
    """The part of the time in which torch.compile compiles, from a trace or as the mean of the trainers' stacks."""
    seen = [trainer.number("own_compiling") or 0.0 for trainer in case.trainers]
    return max(case.number("traced_compiling") or 0.0, sum(seen) / max(1, len(seen)))


def _recompilation(case: Case, cause: str) -> Finding:
    """Most of the overhead is torch.compile, which compiles again and again."""
    return finding(
        case,
        cause,
        takes(case, cause, "Compiling the model again and again"),
        ("trainer_running", "traced_compiling", "traced_busy", "own_compiling"),
        [_COMPILE_ONCE, *debug_fixes(case)],
        "Run with TORCH_LOGS=recompiles: if it tells of no recompilation after the first steps, compiling is not "
        "what takes the time.",
    )


_REST = Fix(
    "Let the other thread rest",
    "A thread that polls or spins in Python takes the lock for 5 ms at a time (sys.getswitchinterval()).",
    "Block in queue.get() or event.wait() instead of polling; sleep between polls.",
)


def gil_contention(case: Case) -> Finding | None:
    """Another Python thread of the trainer holds the interpreter lock."""
    cause = "cpu.gil_contention"
    if case.share(cause) < REPORTED:
        return None
    holder = f" The thread that holds it is at {hot_line(case, cause)}." if hot_line(case, cause) else ""
    fixes = [
        Fix(
            f"Move the work at {hot_line(case, cause)} into a process of its own"
            if hot_line(case, cause)
            else "Move the other thread's work into a process of its own",
            f"The main thread waits for the interpreter lock for {percent(case.share(cause))} of the "
            f"time.{holder}",
            "from concurrent.futures import ProcessPoolExecutor\n"
            "pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('spawn'))\n"
            "pool.submit(work, plain_data)  # no CUDA tensors",
        ),
        _REST,
    ]
    if case.settings.get("pin_thread") == "yes":
        fixes.append(
            Fix(
                "Hand over fewer tensors per batch",
                "The pinning thread is Python too: it walks through every tensor of a batch while it holds "
                "the lock.",
                "Return one or two large tensors from collate_fn.",
            )
        )
    return finding(
        case,
        cause,
        takes(case, cause, "Waiting for the interpreter lock"),
        ("trainer_running", "trainer_cores", "trainer_switches"),
        fixes,
        "Stop the other thread for some steps: if the pace stays the same, the lock is not what holds the "
        "job up.",
    )


_FEWER_OBJECTS = Fix(
    "Keep fewer Python objects alive",
    "What the collector costs grows with the number of objects: lists of samples, dicts per sample, "
    "kept graphs.",
    "Hold such data in NumPy arrays or tensors, and keep float(loss) rather than loss.",
)


def garbage_collection(case: Case) -> Finding | None:
    """The cyclic collector."""
    cause = "cpu.garbage_collection"
    if case.share(cause) < REPORTED:
        return None
    ranks = (
        " on all ranks in the same step, or every rank waits for each pause of any"
        if len(case.trainers) > 1
        else ""
    )
    fixes = [
        Fix(
            "Collect at times of your choosing",
            f"The collector walks through all Python objects again and again: {percent(case.share(cause))} "
            "of the time.",
            "import gc\n"
            "gc.collect(); gc.freeze(); gc.disable()  # once, after model and data are set up\n"
            f"if step % 500 == 0: gc.collect()  #{ranks or ' rarely'}",
        ),
        _FEWER_OBJECTS,
    ]
    if hot_line(case, cause):
        fixes.append(
            Fix(
                f"Look for gc.collect() near {hot_line(case, cause)}",
                "Most collections happen there. If it is called by hand, it can go.",
                "Remove gc.collect() from the step.",
            )
        )
    return finding(
        case,
        cause,
        takes(case, cause, "The cyclic garbage collector"),
        ("trainer_rss",),
        fixes,
        "Run some hundred steps after gc.disable(): if the pace stays the same, the collector is not the "
        "cause.",
    )


INTERPRETER_RULES = (python_overhead, gil_contention, garbage_collection)
