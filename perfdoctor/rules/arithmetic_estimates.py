"""What fixes bring that let the CPU's arithmetic take less: precision, instructions, libraries, memory, threads."""

from perfdoctor.causes import MODEL_COMPUTE, PYTHON_OVERHEAD
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.environment import FEWEST_INSTRUCTIONS
from perfdoctor.rules.proposed import Gain, Proposed


def by_single_precision(fix: Proposed) -> Gain:
    """Half of what is in double precision: registers hold, and memory moves, twice as many numbers at a time.

    Convolutions cost more than twice as much: in single precision oneDNN does them without laying windows out. Of
    the arithmetic of three models without convolutions 0.47 to 0.69 went, of four with them 0.63 to 0.89; and of one
    of elementary functions 0.89 (measured, 2 threads, AVX-512).
    """
    likely, most = (0.67, 0.9) if fix["unfolds"] else (0.5, 0.7)
    return fix.frees(0.4 * fix["part"], likely * fix["part"], most * fix["part"])


def by_all_instructions(fix: Proposed) -> Gain:
    """What vectors of four numbers take instead of eight or sixteen, or where some are left, perhaps nothing.

    Of the arithmetic of a model of convolutions 0.95 went when ``ATEN_CPU_CAPABILITY=default`` and
    ``DNNL_MAX_CPU_ISA=SSE41`` were unset (measured, AVX-512).
    """
    return fix.frees(0.0, 0.75 if fix["value"].lower() in FEWEST_INSTRUCTIONS else 0.3, 0.95)


def by_parts_at_once(fix: Proposed) -> Gain:
    """Gradients of zeros, and fetching memory for them, which counts where that is touched.

    Measured: 0.54 and 0.65 of the time went where they were 0.37 and 0.53 of the samples.
    """
    share = fix.worked(fix["share"])
    return Gain(0.8 * share, 1.3 * share, 1.6 * share)


def by_onednn(fix: Proposed) -> Gain:
    """What lays windows out and what multiplies them, which oneDNN does in one.

    Of eleven kinds of convolutions it made ten 2.0 to 11 times as fast; of a job in which 0.63 of the time was in such
    code, without its matrix products, 0.69 went (measured, 1 thread, AVX-512).
    """
    part = fix["part"]
    return Gain(0.0, 0.9 * part, 1.2 * part).within(thresholds.LEAST_LEFT)


def by_whole_reductions(fix: Proposed) -> Gain:
    """What is set up for each number, and what goes with it: code that others run as well, and the backward pass.

    Of a norm over two parts, as scores of a graph's edges, 0.67 and 0.77 went where 0.20 was set up so (measured).
    """
    part = fix["part"]
    return Gain(2 * part, 3.3 * part, 4.2 * part).within(thresholds.LEAST_LEFT)


def by_one_pass(fix: Proposed) -> Gain:
    """What operations over whole tensors take that a compiled function makes in one pass, and its backward pass.

    Of 22 jobs' functions, 0.05 to 0.44 of the time went in 17 when the function was compiled, next to nothing in one,
    and four took longer; by the part that they took in the forward pass, 0.55 times that as a median, at most 1.8
    (measured, AVX-512).
    """
    share = fix["share"]
    return Gain(0.0, 0.55 * share, 1.3 * share).within(thresholds.LEAST_LEFT)


def by_padded_ffts(fix: Proposed) -> Gain:
    """What FFTs of a length with a large prime factor take more than those of the next product of small primes.

    Of 15 lengths, forward and back, 0.56 to 0.87 went, 0.72 as a median (measured, 1 thread, AVX-512).
    """
    return Gain(0.5 * fix["part"], 0.7 * fix["part"], 0.87 * fix["part"])


def by_kept_memory(fix: Proposed) -> Gain:
    """What the faults take, and at most a third more: threads of a pool wait for each other to have theirs.

    Of three models predicted at 0.16, 0.12 and 0.06 it was 0.21, 0.14 and 0.07 (measured, 2 threads).
    """
    return Gain(0.5 * fix["part"], fix["part"], 4 / 3 * fix["part"])


def by_more_threads(fix: Proposed) -> Gain:
    """The arithmetic, which scales a little worse than with the number of threads.

    Operations must be large for that. Where calling them takes as long as they do, a second thread brought 1.09 times
    the pace (measured), where it took 0.4 times as long 1.3 times, and 1.6 times where 0.1: there is work for no more
    threads than for one, and one more for each time that the arithmetic takes as long as the calls.
    """
    calls = fix.case.share(PYTHON_OVERHEAD)
    useful = 1 + fix.case.share(MODEL_COMPUTE) / calls if calls else float("inf")
    times = min(fix["more"] / float(fix["threads"]), max(1.0, useful / fix["threads"]))
    return fix.frees(0.0, 1 - times**-thresholds.POOL_SCALING, 1 - 1 / times)
