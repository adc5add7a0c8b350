"""Plain values to bytes and back: numbers, texts, tuples, mappings, numpy arrays, and perfdoctor's own dataclasses and
named tuples.

Nothing but the classes of ``_CLASSES`` can come out, whatever the bytes are: they may come from another machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from perfdoctor.analysis.host_summary import HostSummary
from perfdoctor.attribution.account import Account
from perfdoctor.attribution.activities import Activities
from perfdoctor.diagnosis import Evidence, NotExamined
from perfdoctor.messages import Message
from perfdoctor.metrics.neighbours import Neighbour
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.timeline.amounts import Amounts
from perfdoctor.timeline.processes import Process
from perfdoctor.traces.call_sites import CallSites
from perfdoctor.traces.collectives import Collectives
from perfdoctor.traces.loop import WholeSteps
from perfdoctor.traces.rank import Rank
from perfdoctor.traces.roofline import Achieved, Roofline
from perfdoctor.traces.steps import TraceWindow

_OF_TRACES = (Rank, TraceWindow, Collectives, CallSites, WholeSteps, Roofline, Achieved)
_OF_RECORDINGS = (HostSummary, Account, Activities, Process, Case, Trainer, Neighbour)
_CLASSES: dict[str, type[Any]] = {
    one.__name__: one for one in (*_OF_TRACES, *_OF_RECORDINGS, NotExamined, Message, Evidence)
}
_OBJECT, _ARRAY, _MAPPING, _AMOUNTS, _SHARED = 1, 2, 3, 4, 5  # codes of MessagePack's extension type
_RAW, _DIFFERENCES = 0, 1  # codes of how an array is written
_EXACT = 2.0**53  # whole numbers up to here are exact as floats
_LEVEL = 6  # zlib's own default


class Damaged(ValueError):
    """Bytes are not what ``pack`` made."""


def pack(value: object) -> bytes:
    """A value as bytes.

    Raises:
        TypeError: there is something in it that is no plain value.
    """
    return zlib.compress(msgspec.msgpack.encode(_plain(value)), _LEVEL)


Shared = dict[Any, Any]
"""Texts, and by their bytes tuples of texts and whole numbers: thousands of ranks have the same ones."""


def unpack(packed: bytes, shared: Shared | None = None) -> Any:
    """The value that was packed; sequences are tuples.

    Args:
        packed: what ``pack`` made.
        shared: what other values have that were unpacked with it is the same object in memory here.

    Raises:
        Damaged: these bytes are not what ``pack`` made.
    """
    try:
        return _decode(zlib.decompress(packed), {} if shared is None else shared)
    except (zlib.error, msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise Damaged(str(error)) from None


def _decode(raw: bytes | memoryview, shared: Shared) -> Any:
    return _tuples(msgspec.msgpack.decode(raw, ext_hook=partial(_restore, shared)), shared)


def _plain(value: object) -> Any:
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if type(value).__name__ in _CLASSES:
        name = type(value).__name__
        return _extended(_OBJECT, [name, *(_plain(getattr(value, field)) for field in _fields(name))])
    if isinstance(value, (tuple, list)):
        listed = [_plain(one) for one in value]
        return _extended(_SHARED, listed) if all(map(_is_shared, listed)) else listed
    if isinstance(value, Mapping):
        code = _AMOUNTS if isinstance(value, Amounts) else _MAPPING
        return _extended(code, [_plain(list(value)), [_plain(one) for one in value.values()]])
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return _extended(_ARRAY, _of_array(value))
    raise TypeError(f"{type(value).__name__} is no plain value")


def _extended(code: int, value: object) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(value))


def _is_shared(value: object) -> bool:
    """What other ranks may have as well: texts, whole numbers, and tuples of them."""
    if isinstance(value, msgspec.msgpack.Ext):
        return value.code == _SHARED
    return value is None or type(value) in (str, int)


def _fields(name: str) -> tuple[str, ...]:
    """Of a dataclass, or of a named tuple."""
    one = _CLASSES[name]
    return tuple(field.name for field in fields(one)) if is_dataclass(one) else one._fields


def _restore(shared: Shared, code: int, data: memoryview) -> Any:
    if code == _SHARED:
        raw = bytes(data)
        if raw not in shared:
            shared[raw] = _decode(raw, shared)
        return shared[raw]
    if code == _OBJECT:
        name, *listed = _decode(data, shared)
        return _CLASSES[name](**dict(zip(_fields(name), listed, strict=True)))
    if code == _ARRAY:
        return _array(*msgspec.msgpack.decode(data))
    if code in (_MAPPING, _AMOUNTS):
        found = dict(zip(*_decode(data, shared), strict=True))
        return Amounts(found) if code == _AMOUNTS else found
    raise ValueError(f"code {code} is not known")


def _tuples(value: Any, shared: Shared) -> Any:
    if isinstance(value, str):
        return shared.setdefault(value, value)
    return tuple(_tuples(one, shared) for one in value) if isinstance(value, list) else value


def _of_array(values: npt.NDArray[Any]) -> tuple[int, str, tuple[int, ...], bytes]:
    """Whole numbers as differences along the first axis, column by column: small ones, which compress well."""
    whole = values.dtype.kind == "i"
    if values.dtype.kind == "f":
        whole = bool(
            np.all(np.isfinite(values)) and np.all(np.abs(values) < _EXACT) and np.all(values == values.round())
        )
    if not whole:
        return _RAW, values.dtype.str, values.shape, np.ascontiguousarray(values).tobytes()
    differences = np.diff(values.astype(np.int64), axis=0, prepend=0)
    return _DIFFERENCES, values.dtype.str, values.shape, _by_bytes(np.ascontiguousarray(differences.T))


def _by_bytes(values: npt.NDArray[np.int64]) -> bytes:
    """The lowest bytes of all numbers, then the next: where numbers are small, the rest is zeros."""
    folded = (values << 1) ^ (values >> 63)  # the sign as the lowest bit
    return np.ascontiguousarray(folded.reshape(-1).view(np.uint8).reshape(-1, 8).T).tobytes()


def _array(way: int, dtype: str, shape: tuple[int, ...], data: bytes) -> npt.NDArray[Any]:
    if np.dtype(dtype).kind not in "biuf":
        raise ValueError(f"arrays of {dtype} are not known")
    if way == _RAW:
        raw: npt.NDArray[Any] = np.frombuffer(data, dtype=dtype).reshape(shape).copy()
        return raw
    folded = np.ascontiguousarray(np.frombuffer(data, dtype=np.uint8).reshape(8, -1).T).view(np.int64).reshape(-1)
    differences = ((folded >> 1) & np.int64(2**63 - 1)) ^ -(folded & 1)
    whole: npt.NDArray[Any] = np.cumsum(differences.reshape(shape[::-1]).T, axis=0)
    found: npt.NDArray[Any] = whole.astype(dtype)
    return found
