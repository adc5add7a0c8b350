"""A brief run of torch.profiler in a job that nobody prepared: `perfdoctor attach PID --trace`.

The text of this file is what is run in the job, in a thread of its own, after those of ``main_thread_call.py`` and
``python_hooks.py``. perfdoctor need not be installed there, so they import nothing but what every job with PyTorch has
loaded. Only starting, stopping and writing the trace happen here.

The profiler is started and stopped by the main thread, in a pending call: there it is known whether a CUDA graph is
being captured, in which a device must not be synchronized. A first, very short trace shows perfdoctor how long the
second one may be, of all ranks together.

Whatever is put into the job is taken out: a function of torch.profiler that is wrapped to notice a profiler of the
job's own, a handler for the job's end (with the profiler on, the process would crash there), and one for its children
(loader workers would go on recording for ever).

What happens is reported in a file, line by line, each a word and what belongs to it:

    taken PID             the script runs
    refused WHY DETAIL    nothing was traced, and why; see ``Refused``
    started NS COST_NS    when, on the one clock, and how long the main thread stood still for it
    stopped NS COST_NS CPU_S   the same, and what CPU time the process had used meanwhile
    written NAME COST_NS  a trace is complete; how long that took
    broken DETAIL         something failed
    done                  everything has been taken out
"""

from __future__ import annotations

import _thread
import atexit
import gc
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfdoctor.probes.inside.main_thread_call import MainThreadCall
    from perfdoctor.probes.inside.python_hooks import PythonHooks

# Files in the folder that the job and perfdoctor share. ``ASKED`` is there until one of them takes it away: the job,
# which then begins, or perfdoctor, which has waited for long enough. ``ALIVE`` is open as long as perfdoctor lives.
# ``GO`` says when the second trace begins, and how long it is at most: in seconds, and in seconds of CPU time.
ASKED, ALIVE, GO, TOLD, TRACE, PROBE = "asked", "alive", "go", "told", "trace.json", "probe.json"

PROBE_S = 0.05  # some steps, to learn what a traced second costs
# The main thread is asked to stop; where it does not come, in a long call for instance, this thread does it
# if it can.
STOP_PATIENCE_S = 5.0
GO_PATIENCE_S = 60.0
# By so much the process may grow meanwhile, should the first trace have been no good measure: the profiler holds some
# 700 bytes for an operator (measured), and its trace is then about as large.
MEMORY_BYTES = 64_000_000
_ASK_S = 0.02
# Before this version of CUDA, PyTorch keeps CUPTI loaded where CUDA graphs are used: they crash when it is loaded for
# the second time (torch/profiler/profiler.py).
_CUPTI_RELOADS = (12, 6)
_KEEP_CUPTI = {"TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"}

# What is used of torch.autograd.profiler; early versions of it lack some.
_NEEDED = ("profile", "_is_profiler_enabled", "_run_on_profiler_stop")

_NS_PER_S = 1_000_000_000
now = time.monotonic_ns


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Refused(Exception):
    """The job is left alone.

    Args:
        why: ``no_torch``, ``loading``, ``old_torch``, ``profiled``, ``watched`` (its Python functions are),
            ``capturing``, ``ending``, ``busy`` (the main thread ran no Python code), ``unwanted`` (perfdoctor has gone,
            or said nothing).
        detail: more about it; may be empty.
    """

    def __init__(self, why: str, detail: str = "") -> None:
        super().__init__(why, detail)
        self.why, self.detail = why, detail


class BriefTrace:
    """Takes one trace. Nothing here raises, and everything is taken out again.

    Args:
        folder: shared with perfdoctor.
        patience_s: how long the main thread may let us wait.
        new_call: the class of that name, whose file has been run before this one.
        hooks: to record Python functions, too; None for none.
    """

    def __init__(
        self, folder: str, patience_s: float, new_call: type[MainThreadCall], hooks: PythonHooks | None
    ) -> None:
        self._folder = folder
        self._hooks = hooks
        self._new_call = new_call
        self._patience_s = patience_s
        self._torch: Any = None
        self._profiler: Any = None
        self._running: Any = None
        self._result: Any = None
        self._cost_ns = 0
        self._starting = self._of_all_threads = False
        self._interrupted = ""
        self._undo: list[Callable[[], object]] = []
        self._calls: list[MainThreadCall] = []
        self._stopping = _thread.RLock()
        self._over = _thread.allocate_lock()
        self._pid = os.getpid()

    def run(self) -> None:
        """Takes the trace, unless perfdoctor does not want it any more."""
        try:
            os.unlink(self._file(ASKED))
        except OSError:
            return
        self._over.acquire()
        try:
            self._report("taken", self._pid)
            self._take()
        except Refused as refused:
            self._report("refused", refused.why, refused.detail)
        except BaseException as error:  # noqa: BLE001 - whatever is wrong here must not be seen in the job
            self._report("broken", type(error).__name__, error)
        finally:
            self._clean_up()

    def _take(self) -> None:
        self._require_torch()
        self._require_no_profiler()
        self._notice()
        self._trace(PROBE_S, PROBE_S, PROBE)
        begin_ns, seconds, cpu_s = self._wait_for_go()
        time.sleep(max(0.0, (begin_ns - now()) / _NS_PER_S))
        self._trace(seconds, cpu_s, TRACE)

    def _trace(self, seconds: float, cpu_s: float, name: str) -> None:
        """Profiles for some seconds, or until the process has used so much CPU time, and writes what was seen.

        Raises:
            Refused: that is not to be.
        """
        self._in_main_thread(self._start, self._patience_s)
        self._report("started", now(), self._cost_ns)
        until, used, pages = time.monotonic() + seconds, time.process_time(), _resident_bytes()
        while time.monotonic() < until and time.process_time() < used + cpu_s and not self._interrupted:
            time.sleep(_ASK_S)
            if _resident_bytes() > pages + MEMORY_BYTES:
                break
        used = time.process_time() - used
        self._stop_from_here()
        result, self._result = self._result, None
        if self._interrupted or result is None:
            raise Refused(self._interrupted or "ending")
        self._report("stopped", now(), self._cost_ns, used)
        begun = now()
        # Under another name until it is complete.
        result.save(self._file(name + ".part"))
        os.rename(self._file(name + ".part"), self._file(name))
        self._report("written", name, now() - begun)

    def _wait_for_go(self) -> tuple[int, float, float]:
        until = time.monotonic() + GO_PATIENCE_S
        while time.monotonic() < until and not self._interrupted and self._is_wanted():
            try:
                with open(self._file(GO)) as file:
                    begin_ns, seconds, cpu_s = file.read().split()
                return int(begin_ns), float(seconds), float(cpu_s)
            except OSError:
                time.sleep(_ASK_S)
        raise Refused(self._interrupted or "unwanted")

    def _start(self) -> None:
        begun = now()
        if sys.is_finalizing() or self._interrupted:
            raise Refused(self._interrupted or "ending")
        if self._torch._C._autograd._profiler_enabled() or self._profiler._is_profiler_enabled:
            raise Refused("profiled")
        if self._is_capturing():
            raise Refused("capturing")
        if self._hooks is not None and (why_not := self._hooks.why_not()):
            raise Refused("watched", why_not)
        device = self._device()
        if device is not None:
            self._keep_cupti()
        ours = self._new_profiler(device)
        self._starting = True
        try:
            ours._prepare_trace()
            ours._start_trace()
            self._running = ours
            self._say_rank()
        finally:
            self._starting = False
            self._cost_ns = now() - begun

    def _stop_synchronized(self) -> None:
        """Stops when the device has done what was launched; for the main thread."""
        begun = now()
        device = self._device()
        if self._running is not None and device is not None and not self._is_capturing():
            device.synchronize()
        self._stop()
        self._cost_ns = now() - begun

    def _stop_from_here(self) -> None:
        """Stops without the main thread, where that is possible and it does not come; or else waits for it."""
        while self._running is not None:
            try:
                self._in_main_thread(self._stop_synchronized, STOP_PATIENCE_S)
            except Refused:
                if self._of_all_threads:
                    self._stop()

    def _stop(self) -> None:
        with self._stopping:
            running, self._running = self._running, None
            if running is not None:
                self._result = self._torch._C._autograd._disable_profiler()
                self._profiler._run_on_profiler_stop()

    def _new_profiler(self, device: Any) -> Any:
        """A profiler of all threads, where this version has such: the training need not be in the main one."""
        configuration = self._torch._C._profiler._ExperimentalConfig
        try:
            threads = configuration(profile_all_threads=True)
            self._of_all_threads = True
        except TypeError:  # before 2.7
            threads = configuration()
        ours = self._profiler.profile(
            use_kineto=True, record_shapes=True, with_stack=self._hooks is not None, experimental_config=threads
        )
        activity = None if device is None else device.__name__.rpartition(".")[2].upper()
        for supported in self._torch.autograd._supported_activities():
            if supported.name == activity:
                ours.kineto_activities.add(supported)
        return ours

    def _say_rank(self) -> None:
        """Adds to the trace which rank this is, as torch.profiler's own traces have it."""
        ranks: Any = sys.modules.get("torch.distributed")
        if ranks is not None and ranks.is_available() and ranks.is_initialized():
            about = '{"backend": "%s", "rank": %d, "world_size": %d}'
            said = about % (ranks.get_backend(), ranks.get_rank(), ranks.get_world_size())
            self._torch.autograd._add_metadata_json("distributedInfo", said)

    def _device(self) -> Any:
        """``torch.cuda`` or ``torch.xpu``, where the job uses it."""
        for module in (self._torch.cuda, getattr(self._torch, "xpu", None)):
            if module is not None and module.is_initialized():
                return module
        return None

    def _is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured in this thread."""
        cuda = self._torch.cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def _keep_cupti(self) -> None:
        """Where PyTorch keeps CUPTI loaded for CUDA graphs, does so until we have gone."""
        version = tuple(int(part) for part in str(self._torch.version.cuda or "0").split(".")[:2] if part.isdigit())
        missing = [name for name in _KEEP_CUPTI if name not in os.environ]
        if version >= _CUPTI_RELOADS or not missing:
            return
        os.environ.update((name, _KEEP_CUPTI[name]) for name in missing)
        self._undo.append(lambda: [os.environ.pop(name, None) for name in missing])

    def _require_torch(self) -> None:
        self._torch = sys.modules.get("torch")
        self._profiler = sys.modules.get("torch.autograd.profiler")
        if self._torch is None:
            raise Refused("no_torch")
        # While torch is being loaded, not all of it is there.
        if self._profiler is None or not hasattr(self._torch, "profiler") or not hasattr(self._torch, "compile"):
            raise Refused("loading")
        if not all(hasattr(self._profiler, name) for name in _NEEDED):
            raise Refused("old_torch", str(self._torch.__version__))

    def _require_no_profiler(self) -> None:
        """Looks for a profiler of the job's that records, or is about to.

        Not with ``gc.get_objects``: a tuple that somebody else holds cannot be finished by who is making it.
        """
        kind = self._profiler.profile
        for one in gc.get_referrers(kind):
            if type(one) is kind and getattr(one, "entered", False) and one.kineto_results is None:
                raise Refused("profiled")

    def _notice(self) -> None:
        """Puts in what notices a profiler of the job's own, its end, and its children."""
        owner = self._profiler.profile
        original = owner._prepare_trace

        def _prepare_trace(one: Any) -> Any:
            if not self._starting:
                self._interrupt("profiled")
            return original(one)

        def restore() -> None:
            if owner._prepare_trace is _prepare_trace:
                owner._prepare_trace = original

        owner._prepare_trace = _prepare_trace
        self._undo.append(restore)
        atexit.register(self._job_ends)
        self._undo.append(lambda: atexit.unregister(self._job_ends))
        forks: Any = sys.modules.get("multiprocessing.util")
        if forks is not None:
            # Held weakly, so that this goes when we go.
            forks.register_after_fork(self, BriefTrace._in_child)

    def _in_child(self) -> None:
        """In a forked child: what it does is not recorded."""
        if self._running is not None:
            self._running = None
            self._torch._C._autograd._clear_callbacks()
            self._profiler._run_on_profiler_stop()
            if self._hooks is not None:
                self._hooks.drop()
        for undo in self._undo:
            undo()

    def _job_ends(self) -> None:
        self._interrupt("ending")
        until = time.monotonic() + STOP_PATIENCE_S
        # In short waits: the other thread may wait for this one to run Python code.
        while os.getpid() == self._pid and time.monotonic() < until and not self._over.acquire(timeout=_ASK_S):
            pass

    def _interrupt(self, why: str) -> None:
        self._interrupted = self._interrupted or why
        self._stop()

    def _in_main_thread(self, work: Callable[[], object], patience_s: float) -> None:
        """Lets the main thread do something, and raises what that raises.

        Raises:
            Refused: it does not come.
        """
        call = self._new_call(work)
        self._calls.append(call)
        if not call.place(patience_s):
            raise Refused("busy")
        if call.error is not None:
            raise call.error

    def _clean_up(self) -> None:
        try:
            self._stop_from_here()
            for undo in self._undo:
                undo()
            self._undo.clear()
            self._report("done")
            if not self._is_wanted():
                self._remove()
        finally:
            self._over.release()
            for call in self._calls:
                call.wait()

    def _is_wanted(self) -> bool:
        """Whether perfdoctor lives."""
        try:
            os.close(os.open(self._file(ALIVE), os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    def _remove(self) -> None:
        """Removes the folder, of which nobody else will be rid."""
        try:
            for name in os.listdir(self._folder):
                os.unlink(self._file(name))
            os.rmdir(self._folder)
        except OSError:
            pass

    def _file(self, name: str) -> str:
        return self._folder + "/" + name

    def _report(self, *words: object) -> None:
        line = " ".join(str(word).replace("\n", " ") for word in words) + "\n"
        try:
            file = os.open(self._file(TOLD), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)
        except OSError:
            pass
