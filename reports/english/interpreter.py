"""The trainer's Python: dispatch overhead, the GIL, and the cyclic garbage collector."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import percent, twice_the_batch


def compiling_again() -> str:
    return "Compiling the model again and again"


def compiling_again_refuted() -> str:
    return (
        "Run with TORCH_LOGS=recompiles: if it reports no recompilation after the first steps, compiling is not what "
        "takes the time."
    )


def compile_once() -> Fix:
    return Fix(
        "Keep torch.compile from compiling again",
        "A compiled model is valid for the shapes and values it was compiled for; for others it is compiled again.",
        "torch.compile(model, dynamic=True)  # or pad batches to a few sizes\n"
        "# TORCH_LOGS=recompiles python train.py reports what differed each time",
    )


def compiling() -> str:
    return "Compiling the model (torch.compile)"


def compiling_refuted() -> str:
    return "Look again some minutes later: if nothing compiles then, it was done once, and is no bottleneck."


def whole_graph(*, line: str, share: float) -> Fix:
    return Fix(
        "Let torch.compile take the whole model",
        f"{percent(share)} of the time what it was given runs operation by operation all the same, most of that at "
        f"{line}. Where a function does what it cannot follow it breaks the graph, and a loop is given up altogether. "
        "Run with TORCH_LOGS=graph_breaks to see at which lines, and why; with fullgraph=True it fails there instead.",
        "model = torch.compile(model, fullgraph=True)  # once, before the first step",
    )


def wait_for_compiling() -> Fix:
    return Fix(
        "Look again once steps are under way",
        "Next to nothing of a step was seen between compilations. If this is the first one, it is done once and says "
        "nothing of the training; if it still compiles then, each step does.",
        "perfdoctor attach PID   # when the first steps are done",
    )


def keep_compiled() -> Fix:
    return Fix(
        "Compile less, and keep it",
        "A block that is repeated compiles once if blocks are compiled and not the whole model; what is compiled is "
        "kept in a cache that outlives the job.",
        "for block in model.layers: block.compile()\n"
        "os.environ['TORCHINDUCTOR_CACHE_DIR'] = os.path.expanduser('~/.cache/inductor')  # a folder that stays",
    )


def detecting_anomalies() -> str:
    return "Autograd's anomaly detection"


def detecting_anomalies_refuted() -> str:
    return "Turn it off for some steps: if the pace stays the same, it is not what holds the job up."


def outside() -> str:
    return "Code of the job outside of PyTorch"


def not_shown() -> str:
    return "the trace does not show what it does"


def outside_refuted() -> str:
    return (
        "Record the same steps with_stack=True: if the main thread is in frames of a loader, of a save or of PyTorch "
        "then, it is not the job's own code."
    )


def record_stacks(*, several_ranks: bool) -> Fix:
    where = "On that rank the" if several_ranks else "The"
    return Fix(
        "Find out what the main thread does there",
        f"{where} GPU waits while the host calls no operator: it computes in Python or another library, reads a file, "
        "sleeps, or waits for a lock.",
        "perfdoctor attach PID\n# or, in the job: torch.profiler.profile(with_stack=True, ...)",
    )


def shorten_outside() -> Fix:
    return Fix(
        "Do it in parallel with the step",
        "Work that needs no result of the step can be done by workers or another thread while the GPU computes; the "
        "next step is then launched in time.",
        "executor = concurrent.futures.ThreadPoolExecutor(1)\n"
        "done = executor.submit(work, output.detach().cpu())  # and ask for done.result() a step later",
    )


def in_operator() -> str:
    return "Work of operators on the host"


def launch_nothing() -> str:
    return "they launch nothing meanwhile"


def in_operator_refuted() -> str:
    return (
        "Time the operator alone on the host (torch.utils.benchmark): if it takes microseconds, something else holds "
        "it up."
    )


def cheaper_operator(*, operator: str | None) -> Fix:
    return Fix(
        f"Make {operator} cheaper on the host" if operator else "Make the operator cheaper on the host",
        "For more than a millisecond at a time nothing is launched: operators compute on tensors in the host's memory, "
        "go through long lists of tensors, or run Python code of their own. A larger batch only helps where that work "
        "stays the same.",
        "Move its tensors to the GPU, call it on one tensor instead of a list, or prepare what it computes once; keep "
        "descriptors and other launch arguments of a kernel of your own between calls.",
    )


def others_work(*, packages: tuple[str, ...]) -> str:
    named = f" ({', '.join(packages)})" if packages else ""
    return f"Work of other libraries{named} beside the model"


def programs() -> str:
    return "Running other programs and waiting for them"


def keep_program(*, line: str, share: float) -> Fix:
    return Fix(
        f"Keep one program running, and ask it through a pipe{f', at {line}' if line else ''}",
        f"{percent(share)} of the time programs start, work and are waited for. Starting one takes milliseconds, and "
        "an interpreter that imports something 20 ms and more, each time. If the step need not wait for the answer, "
        "ask in one round and read in the next. Here a question and its answer are a line each.",
        "program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # once\n"
        'program.stdin.write(f"{question}\\n")\n'
        "program.stdin.flush()\nanswer = program.stdout.readline()",
    )


def beside() -> str:
    return "Computing besides the model"


def others_work_refuted() -> str:
    return "Leave that work out for some steps: if the pace stays the same, it is not what holds the job up."


def more_rarely(*, lines: tuple[str, ...], part: float, share: float | None) -> Fix:
    return Fix(
        f"Do less, or do it more rarely, at {' and '.join(lines) or 'the code that calls them'}",
        f"{percent(part)} of what runs around the arithmetic is neither torch nor Python's interpreter. Compiling the "
        "model or a larger batch would not change it.",
        "if step % 100 == 0: ...  # images, plots and metrics are rarely needed at each step\n"
        "pool.submit(work, arrays)  # pool = ProcessPoolExecutor(1): what the step need not wait for\n"
        "if kept is None: kept = work()    # once: what is made of data that stays the same",
    )


def compute_rarely(*, line: str, share: float, hook: bool, averages: bool) -> Fix:
    if hook:
        return Fix(
            f"Do what {line} does more rarely",
            f"{percent(share)} of the time goes into operations there. It is a hook, which torch calls in each pass, "
            "and it only reads something out: that is rarely needed at each step.",
            "self.calls += 1\nif self.calls % 100: return  # at the beginning of the hook",
        )
    average = (
        " An average of the weights can be updated less often, if its decay then makes up for the steps in between.",
        "; an average then keeps decay ** 100 of itself\n"
        "# or an average in one call: torch._foreach_lerp_(averages, list(model.parameters()), 1 - decay)",
    )
    more = average if averages else ("", "")
    return Fix(
        f"Do what {line} does more rarely",
        f"{percent(share)} of the time goes there, below the model's passes: metrics and the like are rarely needed at "
        f"each step.{more[0]}",
        f"if step % 100 == 0: ...  # around what calls it{more[1]}",
    )


def own_python() -> str:
    return "The job's own Python code in the training step"


def own_python_refuted() -> str:
    return (
        "Leave that code out for some steps, or let it return a constant: if the pace stays the same, it is not what "
        "holds the job up."
    )


def cheaper_python(*, lines: tuple[str, ...], part: float, share: float | None) -> Fix:
    return Fix(
        f"Make {' and '.join(lines) or 'the Python code of the step'} cheaper",
        f"{_of_own_python(part, share)}: it is the job's own code, run in every step. Compiling the model or a larger "
        "batch would not change it.",
        "Put loops into NumPy or tensor operations, keep results that are computed again and again, do it more rarely, "
        "or do it beside training: ProcessPoolExecutor(1).submit(work, plain_data)",
    )


def _of_own_python(part: float, share: float | None) -> str:
    if share is None:
        return f"{percent(part)} of what runs around the arithmetic is Python's interpreter and not torch"
    return f"{percent(share)} of the time goes into Python's interpreter there and into libraries other than torch"


def calling() -> str:
    return "Calling operations (interpreter and dispatch)"


def calling_refuted() -> str:
    return (
        "Double the batch size: if a step then takes nearly twice as long, the time goes into arithmetic, not into "
        "calls."
    )


# What stands for a loop.
_ONE_OPERATION = (
    "a loop over elements or samples by one tensor operation (torch.stack, torch.where, index_add_, torch.func.vmap), "
    "a loop over parameters by torch.nn.utils.clip_grad_norm_ or, for averages, torch.optim.swa_utils.AveragedModel "
    "with get_ema_multi_avg_fn"
)


def larger_operations(*, line: str | None, share: float) -> Fix:
    return Fix(
        f"Use fewer, larger operations{f' at {line}' if line else ''}",
        f"{percent(share)} of the time goes into calling operations instead of computing: each call costs "
        "some microseconds, however little it computes.",
        f"Replace {_ONE_OPERATION}, and a loop of LSTMCell or GRUCell by torch.nn.LSTM or GRU. If there is no loop "
        "here, look at the caller.",
    )


def without_loop(*, line: str, share: float, computes: float) -> Fix:
    stays = f" They compute for {percent(computes)} besides: large tensors keep that." if computes > share else ""
    return Fix(
        f"Let one operation stand for the loop at {line}",
        f"{_in_the_loop(share)}: each call costs some microseconds, however little it computes.{stays}",
        f"Replace {_ONE_OPERATION}.",
    )


def whole_sequence(*, line: str, cell: str, layer: str, share: float) -> Fix:
    return Fix(
        f"Let torch.nn.{layer} go over the sequence, in place of the {cell} in the loop at {line}",
        f"{_in_the_loop(share)}. A layer for the whole sequence calls few, and computes the same. What else is in the "
        "loop and needs no state of a later round follows it, for all pieces at once.",
        f"self.rnn = torch.nn.{layer}(input_size, hidden_size, batch_first=True)  # where the {cell} was made\n"
        f"outputs, _ = self.rnn(pieces)  # pieces: (batch, length, input_size), in place of the loop",
    )


def _in_the_loop(share: float) -> str:
    return f"{percent(share)} of the time goes into calling the operations in it, those of their backward pass included"


def several_at_once(*, line: str) -> Fix:
    return Fix(
        f"Let each round of the loop at {line} work on more at once",
        "Each round needs what the one before it has made, so all rounds stay. With twice as many sequences, "
        "environments or samples in each, the same calls do twice as much.",
        "batch_size = 2 * batch_size  # or as many environments",
    )


def done_alone(*, rank: int, lines: tuple[str, ...], share: float, waited: float) -> Fix:
    return Fix(
        f"Let rank {rank} do less at {' and '.join(lines)}, or do it more rarely",
        f"Rank {rank} alone spends {percent(share)} of its time there, and the others wait for it for "
        f"{percent(waited)} of theirs: what one rank does beside its part of a step takes the time of all.",
        f"if rank == {rank} and step % 100 == 0: ...  # logs and statistics are rarely needed at each step\n"
        "pool.submit(work, values)  # pool = ThreadPoolExecutor(1); values: copies of what the training changes",
    )


def compile_model(*, sharded: bool, recurrent: bool, gpu: bool) -> Fix:
    first = "\n# before fully_shard or FullyShardedDataParallel" if sharded else ""
    rest = " Recurrent layers (LSTM, GRU, RNN) stay as they are: it is for the rest of the model." if recurrent else ""
    tried = " On a CPU, try it first: it may bring twice the pace, or nothing, and makes a model of few layers slower."
    return Fix(
        "Compile the model",
        "A compiled model runs many small operators as few large ones, without Python between them. The first steps "
        "then take a minute or more: it pays off in a run of many minutes." + rest + ("" if gpu else tried),
        "model.compile()  # Python loops in forward are unrolled: compile what a long one repeats instead\n"
        "# of a model of equal blocks, in a fraction of the time: for block in model.layers: block.compile()" + first,
    )


def compiling_is_off() -> str:
    return "It turns torch.compile off, which would merge small operators."


def larger_batch(*, loader: bool) -> Fix:
    return Fix(
        "Use a larger batch",
        "The number of calls per step stays the same while each computes more.",
        twice_the_batch(loader),
    )


def waiting_for_gil() -> str:
    return "Waiting for the GIL"


def waiting_for_gil_refuted() -> str:
    return "Stop the other thread for some steps: if the pace stays the same, the GIL is not what holds the job up."


def own_process(*, line: str | None, share: float) -> Fix:
    work = f"the work at {line}" if line else "the other thread's work"
    holder = f" The thread that holds it is at {line}." if line else ""
    return Fix(
        f"Move {work} into a process of its own",
        f"The main thread waits for the GIL for {percent(share)} of the time.{holder}",
        "import multiprocessing\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('spawn'))\n"
        "# which imports the script: what trains must stand below if __name__ == '__main__'\n"
        "pool.submit(work, plain_data)  # no CUDA tensors",
    )


def rest() -> Fix:
    return Fix(
        "Let the other thread rest",
        "A thread that polls or spins in Python takes the GIL for 5 ms at a time (sys.getswitchinterval()).",
        "Block in queue.get() or event.wait() instead of polling; sleep between polls.",
    )


def fewer_tensors() -> Fix:
    return Fix(
        "Hand over fewer tensors per batch",
        "The pinning thread is Python too: it walks through every tensor of a batch while it holds the GIL.",
        "Return one or two large tensors from collate_fn.",
    )


def collecting() -> str:
    return "Garbage collection (GC)"


def collecting_refuted() -> str:
    return "Run some hundred steps after gc.disable() and without gc.collect(): if the pace stays, GC is not the cause."


def collect_rarely(*, share: float, several_ranks: bool) -> Fix:
    when = "on all ranks in the same step, or every rank waits for each pause of any" if several_ranks else "rarely"
    return Fix(
        "Collect at times of your choosing",
        f"GC walks through all Python objects again and again: {percent(share)} of the time.",
        "import gc\n"
        "gc.collect(); gc.freeze(); gc.disable()  # once, after model and data are set up\n"
        f"if step % 500 == 0: gc.collect()  # {when}",
    )


def fewer_objects() -> Fix:
    return Fix(
        "Keep fewer Python objects alive",
        "What GC costs grows with the number of objects: lists of samples, dicts per sample, kept graphs.",
        "Hold such data in NumPy arrays or tensors, and keep float(loss) rather than loss.",
    )


def no_call(*, line: str | None, part: float) -> Fix:
    return Fix(
        f"Take gc.collect() out of the step{f' at {line}' if line else ''}",
        f"{percent(part)} of GC happens at a line that does nothing else: it is called there, and gc.disable() does "
        "not stop that. Most objects are freed as soon as they are not needed; only reference cycles wait for GC.",
        "# gc.collect()  # or: if step % 500 == 0: gc.collect(), after gc.freeze() once model and data are set up",
    )


def collected_by_hand(*, line: str) -> Fix:
    return Fix(
        f"Look for gc.collect() near {line}",
        "Most collections happen there. If it is called by hand, it can go.",
        "Remove gc.collect() from the step.",
    )
