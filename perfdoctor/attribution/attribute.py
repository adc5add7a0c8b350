"""The breakdown: where every second of the trainers' wall time went, by cause, the unattributed rest included."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from perfdoctor.attribution.account import Ledger, settle_waits
from perfdoctor.attribution.code_mix import read_code_mix
from perfdoctor.attribution.gil_switches import handover_fraction
from perfdoctor.attribution.gpu import read_gpus
from perfdoctor.attribution.parts import WRITES, WRITTEN
from perfdoctor.attribution.pipeline import settle_pipeline
from perfdoctor.attribution.trainer import LOADER_WAITS, Blame
from perfdoctor.recording.clock import NS_PER_S
from perfdoctor.timeline.job import Scene
from perfdoctor.timeline.processes import Process

# Mean bytes per packet on the wire below which a collective is many small messages: a full Ethernet frame is 1.5 kB,
# and the kernel sends large buffers in segments of up to 64 kB (measured on loopback: 0.1 to 0.6 kB against 20 to 60).
# Drivers of network cards may count what a card cuts such a segment into, so a packet that fills half of what the link
# carries at once is not small.
SMALL_PACKET_BYTES = 4096
# Written bytes per second of waiting above which a file is state rather than a log: a slow disk takes more of a large
# write, and a synced log line is some hundred bytes per 1 to 20 ms.
STATE_BYTES_PER_S = 2_000_000
# Mean bytes per packet from which bytes are what takes the time, on however slow a link: whoever sends has so much
# ready that segments grow to tens of kilobytes (measured: 32 to 55 kB; 6 to 15 kB where ranks wait for a few small
# buckets).
LARGE_PACKET_BYTES = 24_000
# What the loopback interface carries at least between two gloo ranks (measured here: 1.2 GB/s on two busy cores).
LOOPBACK_BYTES_PER_S = 1e9
# A link that is filled to less than this while ranks are in collectives is not what they wait for.
UNFILLED = 0.25
BANDWIDTH, LATENCY = "communication.bandwidth", "communication.latency"
BLOCK_NS = NS_PER_S
Spans = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
IN_LOADER = (*LOADER_WAITS, "loader start", "sampling")


def account(scene: Scene) -> list[Ledger]:
    """Accounts for every instant at which the trainers were sampled."""
    trainers = scene.roles.trainers
    blame = Blame(
        scene,
        mixes={trainer.pid: read_code_mix(scene, trainer.pid) for trainer in trainers},
        saved_paths={trainer.pid: _saved_paths(scene, trainer) for trainer in trainers},
        gpus=read_gpus(scene.recording),
        handovers={trainer.pid: handover_fraction(scene, trainer.pid) for trainer in trainers},
        restarts={trainer.pid: _restart_waits(scene, trainer) for trainer in trainers},
    )
    ledgers = [_account_for(scene, blame, trainer) for trainer in trainers]
    for ledger in ledgers:
        settle_pipeline(scene, ledger, blame.saved_paths[ledger.trainer.pid])
    settle_waits(ledgers)
    if _many_small_messages(scene, ledgers):
        for ledger in ledgers:
            ledger.rename(BANDWIDTH, LATENCY)
    return ledgers


def _account_for(scene: Scene, blame: Blame, trainer: Process) -> Ledger:
    mix = blame.mixes[trainer.pid]
    ledger = Ledger(trainer, interpreter=mix.interpreter, libraries=mix.libraries)
    timeline = scene.timelines.main(trainer.pid)
    if timeline is None:
        return ledger
    alive = np.array([state != "X" for state in timeline.states], dtype=bool)
    times = timeline.times_ns[alive]
    if len(times) < 2:
        return ledger
    # Each sample stands for the time up to halfway to its neighbours.
    edges = np.concatenate([times[:1], (times[1:] + times[:-1]) / 2, times[-1:]])
    steps = scene.steps.get(trainer.pid)
    # What lies outside of observed steps, a validation for instance, is not charged to training.
    spans = np.diff(edges) / NS_PER_S if steps is None or not steps.all else steps.weigh(times, edges)
    runnable = np.array([state == "R" for state in timeline.states], dtype=bool)[alive]
    spans = as_counted(spans, runnable, timeline.uses(edges, spans > 0))
    for time, seconds in zip(times.tolist(), spans.tolist(), strict=True):
        if seconds <= 0:
            continue
        place = scene.place_at(trainer.pid, time, scene.main_at(trainer.pid, time))
        block = (time - scene.recording.start_ns) // BLOCK_NS
        ledger.add(block, seconds, place, blame.parts(trainer, time))
    return ledger


def as_counted(spans: Spans, runnable: Flags, counted: tuple[float, float]) -> Spans:
    """Spans of time scaled so that a thread is runnable for as long as the kernel counted, and else asleep.

    Looks are no fair sample where the job's own wake-ups and the observer's fall on the same ticks of a clock: a loop
    that waited for its log for 9 % of the time was seen waiting in 2 % of the looks (measured). The kernel's clocks
    miss nothing. This is post-stratification, as surveys do it. A delay may end a wait or interrupt work, so between
    time on a CPU and that with all delays, what was seen stands.

    Args:
        spans: seconds that each look stands for.
        runnable: whether the thread was on a CPU or ready for one then.
        counted: fractions of the time that the kernel counted it as on a CPU, and as ready for one.
    """
    seen = float(spans[runnable].sum() / (spans.sum() or 1.0))
    running, delayed = counted
    was = min(max(seen, running), running + delayed)
    if not 0 < seen < 1 or not 0 < was < 1:
        return spans
    return np.asarray(spans * np.where(runnable, was / seen, (1 - was) / (1 - seen)))


def _saved_paths(scene: Scene, trainer: Process) -> dict[str, str]:
    """What each target that the trainer waits to write is, told by library frames, or else by how much is written."""
    timeline = scene.timelines.main(trainer.pid)
    known: dict[str, str] = {}
    waited = 0.0
    if timeline is None:
        return {"": "io.log_write"}
    for index, call in enumerate(timeline.syscalls[:-1]):
        if call not in WRITES or not timeline.targets[index].startswith("file:"):
            continue
        time = int(timeline.times_ns[index])
        waited += float(timeline.times_ns[index + 1] - time) / NS_PER_S
        phase = scene.place_at(trainer.pid, time, timeline.at(time)).phase
        if phase == "saving":
            known[timeline.targets[index]] = WRITTEN[phase]
        elif phase in WRITTEN:
            known.setdefault(timeline.targets[index], WRITTEN[phase])
    written = scene.counters.growth(f"pid:{trainer.pid}", "write_call_bytes_total")
    large = waited > 0 and written / waited >= STATE_BYTES_PER_S and scene.kernel_work.saves_state(trainer.pid)
    return {**known, "": "io.checkpoint_write" if large else "io.log_write"}


def _many_small_messages(scene: Scene, ledgers: list[Ledger]) -> bool:
    """Whether collectives take their time for messages rather than for bytes.

    Told by the mean size of what travels and, where that is neither small nor large, by whether the link would have
    carried all of it in a fraction of the time that was spent in collectives. A link may carry less than it says: its
    traffic is shaped, or shared.
    """
    facts, counters = scene.recording.facts, scene.counters
    interfaces = counters.subjects("sent_bytes_total")
    sent = {name: counters.growth(name, "sent_bytes_total") for name in interfaces}
    packets = sum(counters.growth(name, "sent_packets_total") for name in interfaces)
    spent = sum(ledger.causes()[BANDWIDTH] for ledger in ledgers) / max(1, len(ledgers))
    if packets <= 0 or spent <= 0:
        return False
    busiest = max(sent, key=lambda name: sent[name])
    link = float(facts.get((busiest, "link_bits_per_second"), 8 * LOOPBACK_BYTES_PER_S)) / 8
    small = min(SMALL_PACKET_BYTES, float(facts.get((busiest, "mtu_bytes"), math.inf)) / 2)
    packet = sum(sent.values()) / packets
    unfilled = sum(sent.values()) / spent < UNFILLED * link
    return packet < small or (unfilled and packet < LARGE_PACKET_BYTES)


def _restart_waits(scene: Scene, trainer: Process) -> list[tuple[int, int]]:
    """Spans in which the trainer waits for a first batch, from the start of new workers until it leaves the loader."""
    suppliers = [*scene.roles.workers_of(trainer.pid), *scene.roles.helpers_of(trainer.pid)]
    starts = sorted(process.started_ns for process in suppliers if process.started_ns > scene.recording.start_ns)
    spans: list[tuple[int, int]] = []
    for start in starts:
        if spans and start < spans[-1][1]:
            continue
        # A sample may miss that it left the loader for a moment; its marks do not.
        steps = scene.steps.get(trainer.pid)
        end = _seen_outside(scene, trainer, start) if steps is None else steps.first_batch_ns(start)
        spans.append((start, end))
    return spans


def _seen_outside(scene: Scene, trainer: Process, start_ns: int) -> int:
    """Where a trainer was first sampled outside of its loader."""
    timeline = scene.timelines.main(trainer.pid)
    end = start_ns
    times = () if timeline is None else timeline.times_ns[np.searchsorted(timeline.times_ns, start_ns) :].tolist()
    for time in times:
        end = time
        if scene.place_at(trainer.pid, time, scene.main_at(trainer.pid, time)).detail not in IN_LOADER:
            break
    return end
