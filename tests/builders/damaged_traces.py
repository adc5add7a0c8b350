"""Ways to damage a trace: each takes a random source and a sound document, and gives the bytes of a file."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from random import Random
from typing import Any

Mutation = Callable[[Random, Any], bytes]

STRANGE: tuple[Any, ...] = (
    None, True, False, "", "text", "7", "-7", "0x1F", [], [1, 2], {}, {"a": {"b": [1]}}, 0, -1, 1.5, -0.0, 1e308,
    -1e308, 10**30, 2**63, -(2**63), 2**62, "é\u0000\ud83d\ude00",
)  # fmt: skip
CATEGORIES = ("kernel", "Kernel", "cpu_op", "cuda_runtime", "gpu_memcpy", "python_function", "overhead", "xpu", "", "?")


def pack(document: Any) -> bytes:
    return json.dumps(document).encode()


def events_of(document: Any) -> list[Any]:
    found: list[Any] = document if isinstance(document, list) else document["traceEvents"]
    return found


def cut(random: Random, document: Any) -> bytes:
    whole = pack(document)
    return whole[: random.randrange(len(whole))]


def cut_packed(random: Random, document: Any) -> bytes:
    whole = gzip.compress(pack(document), mtime=0)
    return whole[: random.randrange(len(whole))]


def flip_bits(random: Random, document: Any) -> bytes:
    return _flipped(random, pack(document))


def flip_bits_packed(random: Random, document: Any) -> bytes:
    return _flipped(random, gzip.compress(pack(document), mtime=0))


def _flipped(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def move_bytes(random: Random, document: Any) -> bytes:
    """Deletes a run of bytes, or puts it somewhere else once more."""
    whole = pack(document)
    start = random.randrange(len(whole))
    run = whole[start : start + random.choice((1, 3, 50, 5000))]
    if random.random() < 0.5:
        return whole[:start] + whole[start + len(run) :]
    place = random.randrange(len(whole))
    return whole[:place] + run + whole[place:]


def drop_fields(random: Random, document: Any) -> bytes:
    return _each(random, document, lambda place, key: place.pop(key))


def wrong_types(random: Random, document: Any) -> bytes:
    def change(place: dict[str, Any], key: str) -> None:
        place[key] = random.choice(STRANGE)

    return _each(random, document, change)


def swap_fields(random: Random, document: Any) -> bytes:
    def change(place: dict[str, Any], key: str) -> None:
        other = random.choice(sorted(place))
        place[key], place[other] = place[other], place[key]

    return _each(random, document, change)


def foreign_fields(random: Random, document: Any) -> bytes:
    def change(place: dict[str, Any], _: str) -> None:
        place[random.choice(("id", "bp", "s", "Ev Idx", "grid", "traceEvents", "deviceProperties"))] = random.choice(
            STRANGE
        )

    return _each(random, document, change)


def _each(random: Random, document: Any, change: Callable[[dict[str, Any], str], Any]) -> bytes:
    """Changes a field of some events, of their arguments, or of the document."""
    changed = copy.deepcopy(document)
    events = events_of(changed)
    for _ in range(random.choice((1, 1, 3, 20))):
        place = random.choice(events)
        if random.random() < 0.3 and isinstance(place.get("args"), dict) and place["args"]:
            place = place["args"]
        elif random.random() < 0.1 and isinstance(changed, dict) and len(changed) > 1:
            place = {key: value for key, value in changed.items() if key != "traceEvents"}
        if place:
            change(place, random.choice(sorted(place)))
    return pack(changed)


def wrong_times(random: Random, document: Any) -> bytes:
    changed = copy.deepcopy(document)
    for event in random.sample(events_of(changed), random.choice((1, 2, 10))):
        event[random.choice(("ts", "dur"))] = random.choice(
            (-1, -1e9, 0, 1e18, -1e18, 1e300, 10**19, float("nan"), float("inf"), float("-inf"), 1e-9)
        )
    return pack(changed)


def negative_durations(random: Random, document: Any) -> bytes:
    changed = copy.deepcopy(document)
    timed = [event for event in events_of(changed) if event.get("ph") == "X"]
    for event in random.sample(timed, min(len(timed), random.choice((1, 5, 20)))):
        event["dur"] = -abs(event["dur"]) - 0.5
    return pack(changed)


def reorder(random: Random, document: Any) -> bytes:
    changed = copy.deepcopy(document)
    random.shuffle(events_of(changed))
    return pack(changed)


def duplicate(random: Random, document: Any) -> bytes:
    changed = copy.deepcopy(document)
    events = events_of(changed)
    events += [copy.deepcopy(random.choice(events)) for _ in range(random.choice((1, 10, len(events))))]
    return pack(changed)


def foreign_events(random: Random, document: Any) -> bytes:
    changed = copy.deepcopy(document)
    events = events_of(changed)
    for _ in range(random.choice((1, 5, 20))):
        strange = {
            "ph": random.choice("XXXBEiMCsfbeZ"),
            "cat": random.choice(CATEGORIES),
            "name": random.choice(("", "x", "ProfilerStep#9", "nccl:all_reduce", "Memcpy HtoD")),
            "ts": random.choice((0, 1e6, 1010.5, 1e15)),
            "dur": random.choice((0, 1, 1e6)),
            "pid": random.choice((0, 100, "GPU", -1)),
            "tid": random.choice((0, 7, "stream 7")),
        }
        events.insert(random.randrange(len(events)), random.choice((strange, strange, random.choice(STRANGE))))
    return pack(changed)


MUTATIONS: tuple[Mutation, ...] = (
    cut, cut_packed, flip_bits, flip_bits_packed, move_bytes, drop_fields, wrong_types, swap_fields, foreign_fields,
    wrong_times, negative_durations, reorder, duplicate, foreign_events,
)  # fmt: skip
