"""The input pipeline: making batches, starting workers, hand-over, and locks."""

from collections.abc import Iterator, Mapping

from perfdoctor.causes import DATA_TRANSFER, INPUT_PREPROCESSING, LOCK_CONTENTION, WORKER_STARTUP
from perfdoctor.diagnosis import Advice, advise
from perfdoctor.knowledge import thresholds
from perfdoctor.knowledge.detours import PROXIED
from perfdoctor.knowledge.libraries import LOOK_UPS, OPENERS, PREPARED, TABLES
from perfdoctor.knowledge.slow_calls import kind_of_call
from perfdoctor.messages import say
from perfdoctor.rules.case import Case
from perfdoctor.rules.left_on import stop_watching
from perfdoctor.rules.rule import Rule
from perfdoctor.rules.workers import freed_without_workers, no_more_workers, plan_workers, worker_fixes


def _mostly_sampling(case: Case) -> bool:
    """Whether most of it is the sampler's: indices are drawn in the trainer, however many workers there are."""
    return bool(case.trainers) and case.mean_of("own_sampling") >= thresholds.MOSTLY * case.share(INPUT_PREPROCESSING)


def _mostly_sleeps(case: Case) -> bool:
    """Whether most of it is no work at all: whoever prepares batches lets a set time pass."""
    return (case.number("input_asleep") or 0.0) >= thresholds.MOSTLY


def _sleep_less(case: Case) -> Iterator[Advice]:
    share = (case.number("input_asleep") or 0.0) * case.share(INPUT_PREPROCESSING)
    yield advise("input.no_sleep", line=case.hot_line(INPUT_PREPROCESSING), share=share)
    if case.may_have_loader:  # what a loop of its own waits for is prepared elsewhere already
        yield from worker_fixes(case, INPUT_PREPROCESSING, plan_workers(case, INPUT_PREPROCESSING))


def _draw_otherwise(case: Case) -> Iterator[Advice]:
    share, first = case.share(INPUT_PREPROCESSING), case.number("first_batches") or 0.0
    if first >= thresholds.MOSTLY:
        yield advise("input.keep_iterator", line=case.hot_line(INPUT_PREPROCESSING), first=first, share=first * share)
        return
    yield advise("input.draw_many", line=case.hot_line(INPUT_PREPROCESSING), share=share)
    yield advise("input.draw_ahead")


def _prepare_otherwise(case: Case) -> Iterator[Advice]:
    share, below = case.share(INPUT_PREPROCESSING), case.below.get(INPUT_PREPROCESSING, {})
    plan, kind = plan_workers(case, INPUT_PREPROCESSING), "programs" if _runs_programs(case) else _kind_of_input(below)
    arrow = str(case.settings.get("dataset", "")).startswith("arrow")
    yield from stop_watching(case)
    yield from worker_fixes(case, INPUT_PREPROCESSING, plan)
    per_pass = None if case.depends_on_steps else case.settings.get("per_pass_at")
    if per_pass is not None:
        yield advise("input.fewer_passes", place=per_pass, share=case.mean_of("own_per_pass"))
    asked = case.asks_helpers and case.number("helpers_at_once") is not None
    if asked:
        yield from _helper_fixes(case, INPUT_PREPROCESSING)
    if (server := case.served_by(INPUT_PREPROCESSING)) is not None:
        yield advise("input.faster_server", server=server)
        return
    # Rows of tensors in memory, taken one by one and stacked: the preparation is torch's own.
    if _has_rows(case) and below.get("torch", 0.0) >= thresholds.MOSTLY:
        yield advise("input.whole_batches")
        return
    tables = sum(below.get(name, 0.0) for name in TABLES)
    call, part = case.hot_call(INPUT_PREPROCESSING)
    if not kind_of_call(call) and case.settings.get("dataset") == "rows of a table" and tables >= thresholds.MOSTLY:
        yield advise("input.table_once", part=min(1.0, tables))
    if arrow and below.get("datasets", 0.0) >= thresholds.DECODING:
        yield advise("input.rows_in_order", by_number=case.settings.get("dataset") == "arrow rows by number")
    yield from _open_once(case)
    if kind == "text":  # tokens are the same in each epoch
        yield from _prepare_once(case, kind, arrow=arrow)
    line = case.hot_line(INPUT_PREPROCESSING)
    yield from _buffer_reads(case, line)
    if line or call or not asked:  # without a place it is what the helpers do
        yield advise(
            "input.cheaper",
            line=line,
            loader=case.may_have_loader,
            share=share,
            no_more_workers=no_more_workers(plan, share),
            call=call,
            part=part,
            kind=kind_of_call(call) or kind,
        )
    if kind != "text" and not case.depends_on_steps and per_pass is None:
        yield from _prepare_once(case, kind, arrow=arrow)
    if case.uses_gpu and kind in ("images", "video"):
        yield advise("input.decode_on_gpu", kind=kind)
    if case.uses_gpu and kind not in ("text", "video", "sound"):
        yield advise("input.augment_on_gpu")


def _helper_fixes(case: Case, cause: str) -> Iterator[Advice]:
    """What makes a trainer wait less for processes that it asks by itself: environments, or a pool of its own."""
    helpers = max((trainer.helpers for trainer in case.trainers), default=0)
    at_once = case.number("helpers_at_once")
    if helpers > 1 and (at_once is None or at_once < thresholds.ONE_AT_A_TIME):
        yield advise("helpers.ask_together", helpers=helpers, at_once=at_once)
    if case.settings.get("helpers") == "for input":
        yield advise("helpers.ask_ahead")
    if cause == DATA_TRANSFER:
        yield advise("helpers.send_arrays")
        yield advise("helpers.larger_requests")


def _open_once(case: Case) -> Iterator[Advice]:
    opened = case.calls_among(INPUT_PREPROCESSING, OPENERS)
    looked_up = case.calls_among(INPUT_PREPROCESSING, frozenset().union(*(LOOK_UPS.get(call, ()) for call in opened)))
    calls = opened | looked_up
    share = case.share(INPUT_PREPROCESSING) * sum(calls.values())
    if share >= thresholds.REPORTED_SHARE:
        yield advise("input.open_once", call=max(calls, key=lambda call: calls[call]), share=share)


def _buffer_reads(case: Case, line: str | None) -> Iterator[Advice]:
    """Many bytes at a time, where so many read calls fetch so few each that the calls themselves take long."""
    rate, size = case.number("read_calls") or 0.0, case.number("bytes_per_read")
    taken = min(rate * thresholds.READ_CALL_S, case.share(INPUT_PREPROCESSING))
    if line and size is not None and size < thresholds.UNBUFFERED_READ and taken >= thresholds.REPORTED_SHARE:
        yield advise("io.buffered_reads", line=line, size=size, rate=rate, share=taken)


def _prepare_once(case: Case, kind: str, *, arrow: bool) -> Iterator[Advice]:
    """What is the same in each epoch, if that takes enough."""
    drawn = case.number("drawn_before") or 0.0
    if (1 - drawn) * case.share(INPUT_PREPROCESSING) >= thresholds.REPORTED_SHARE:
        yield advise(
            "input.prepare_once", kind=kind, arrow=arrow, drawn=drawn if drawn >= thresholds.SHOWN_PART else None
        )


def _runs_programs(case: Case) -> bool:
    """Whether most of the preparation is done by programs that it starts: for each sample, as often as that is seen."""
    return case.part_of_programs(INPUT_PREPROCESSING) >= thresholds.MOSTLY


def _kind_of_input(below: Mapping[str, float]) -> str:
    """What the preparation is about by the packages that work at it: ``images``, ``sound`` …; "" where others do."""
    parts = {kind: sum(below.get(name, 0.0) for name in names) for kind, names in PREPARED.items()}
    kind = max(parts, key=lambda kind: parts[kind])
    # Tensors are what all kinds become, and the job's own code may be about any.
    others = {name: part for name, part in below.items() if name not in PREPARED[kind] | {"torch", ""}}
    mostly_other = max(others.values(), default=0.0) >= thresholds.MOSTLY
    return kind if parts[kind] >= thresholds.DECODING and not mostly_other else ""


def _has_rows(case: Case) -> bool:
    """Whether the samples are rows of tensors in memory."""
    return case.settings.get("dataset") == "tensors"


def _keep_workers(case: Case) -> Iterator[Advice]:
    pool = case.settings.get("pool_at")
    if pool is not None:
        yield advise("workers.keep_pool", place=pool, share=case.share(WORKER_STARTUP))
        return
    yield advise("input.keep_workers", starts=case.number("worker_starts"), life=case.number("worker_life"))
    yield advise("input.longer_epochs")
    if not case.uses_gpu and (freed_without_workers(case, WORKER_STARTUP) or 0.0) >= thresholds.REPORTED_SHARE:
        yield advise("input.without_workers")
    if case.settings.get("start_method") == "spawn":
        yield advise("input.fork_server")


def _hand_over_otherwise(case: Case) -> Iterator[Advice]:
    if case.asks_helpers:
        yield from _helper_fixes(case, DATA_TRANSFER)
        return
    proxied = sum(one.share for one in case.detours if one.way == PROXIED)
    if proxied >= thresholds.MOSTLY * case.share(DATA_TRANSFER):
        return  # batches are not what is handed over
    alone = (case.setting("workers") or 0) > 0 and not case.uses_gpu
    freed = (freed_without_workers(case, DATA_TRANSFER) or 0.0) if alone else 0.0
    first = freed >= thresholds.MOSTLY * case.share(DATA_TRANSFER)  # batches cost less to make than to send
    if first:
        yield advise("input.without_workers")
    busy = case.number("worker_busy")
    slack = None if busy is None or 1 - busy < thresholds.SLACK_OF_WORKERS else 1 - busy
    by_file = case.number("taken_by_file") or 0.0
    fewer = advise("input.whole_batches") if _has_rows(case) else advise("input.fewer_tensors", slack=slack)
    by_name = [advise("input.share_by_name", part=by_file)] if by_file >= thresholds.SHOWN_PART else []
    # Where unpickling takes little, there are few objects in a batch.
    yield from (*by_name, fewer) if by_file >= thresholds.MOSTLY else (fewer, *by_name)
    if case.settings.get("pin_thread") == "yes":
        yield advise("input.pin_less")
    if slack and max((trainer.workers for trainer in case.trainers), default=0) > 1:
        yield advise("input.out_of_order", slack=slack)
    if alone and not first:
        yield advise("input.without_workers")


def _lock_less(case: Case) -> Iterator[Advice]:
    line = case.hot_line(LOCK_CONTENTION)
    if len(case.trainers) > 1 and not any(trainer.workers for trainer in case.trainers):
        yield advise("input.lock_update", line=line)
    elif case.may_have_loader:
        yield advise("input.own_resource", line=line)
        yield advise("input.lock_shared_part")
    elif case.hot_path(LOCK_CONTENTION) is None:  # threads share what it protects
        yield advise("input.lock_copy", line=line)
    else:
        yield advise("input.lock_shared_part")


INPUT_RULES = (
    Rule(
        INPUT_PREPROCESSING,
        say("input.sampling"),
        ("first_batches", "worker_busy", "workers_busy"),
        _draw_otherwise,
        say("input.sampling_refuted"),
        applies=_mostly_sampling,
    ),
    Rule(
        INPUT_PREPROCESSING,
        say("input.sleeping"),
        ("input_asleep", "workers_busy", "worker_busy"),
        _sleep_less,
        say("input.sleeping_refuted"),
        applies=_mostly_sleeps,
    ),
    Rule(
        INPUT_PREPROCESSING,
        say("input.preparing"),
        (
            "workers_busy",
            "worker_busy",
            "helpers_at_once",
            "job_cores",
            "worker_cores",
            "neighbour_cores",
            "page_cache",
            "drawn_before",
            "first_batches",
            "traced_loading",
            "traced_busy",
            "exposed_data",
        ),
        _prepare_otherwise,
        say("input.preparing_refuted"),
    ),
    Rule(
        WORKER_STARTUP,
        say("input.starting"),
        ("worker_starts", "worker_life", "own_copying", "exposed_data"),
        _keep_workers,
        say("input.starting_refuted"),
    ),
    Rule(
        DATA_TRANSFER,
        say("input.hand_over"),
        ("worker_busy", "workers_busy", "helpers_at_once", "trainer_switches", "exposed_data"),
        _hand_over_otherwise,
        say("input.hand_over_refuted"),
    ),
    Rule(
        LOCK_CONTENTION,
        say("input.queueing"),
        ("worker_busy", "worker_cores"),
        _lock_less,
        say("input.queueing_refuted"),
    ),
)
