"""What sort of thing an event is, by its category and its phase, from the first Kineto to today's."""

from __future__ import annotations

from enum import IntEnum

from perfdoctor.traces.model import DeviceKind, HostKind

# Categories in lower case, from Kineto 2020 (Operator, Kernel, Memcpy) to today.
DEVICE_CATEGORIES = {
    "kernel": DeviceKind.KERNEL,
    "gpu_memcpy": DeviceKind.COPY,
    "memcpy": DeviceKind.COPY,
    "gpu_memset": DeviceKind.SET,
    "memset": DeviceKind.SET,
}
HOST_CATEGORIES = {
    "cpu_op": HostKind.OPERATOR,
    "operator": HostKind.OPERATOR,
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
}
# ``cuda_`` on AMD's GPUs too; ``xpu_runtime`` and ``privateuse1_runtime`` elsewhere.
CALL_CATEGORIES = frozenset(
    ("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "xpu_runtime", "xpu_driver", "glow_runtime")
)
# Neither work nor waiting: spans of the profiler itself, and copies of host annotations on a device's lane.
IGNORED = frozenset(("trace", "overhead", "gpu_user_annotation", "cuda_profiler_range", "cuda_sync", "ac2g", "fwdbwd"))
# Phases of the trace event format that carry no duration: metadata, instants, counters, flows, asynchronous spans,
# samples, objects, marks, memory dumps, clock and context events.
NO_DURATION = frozenset("MIiCstfbneSTFPNODRVvc(),")


class Table(IntEnum):
    """Where a row goes, in the order in which the rows of a piece are laid out."""

    HOST = 0
    CALLS = 1
    DEVICE = 2


Kind = tuple[Table, int]
KINDS: dict[str, Kind] = {
    **{category: (Table.HOST, kind) for category, kind in HOST_CATEGORIES.items()},
    **dict.fromkeys(CALL_CATEGORIES, (Table.CALLS, 0)),
    **{category: (Table.DEVICE, kind) for category, kind in DEVICE_CATEGORIES.items()},
}
