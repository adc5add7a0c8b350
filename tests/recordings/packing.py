"""A recording as the corpus keeps it: secrets masked anew, names of people and machines replaced, packed."""

import gzip
import json
import lzma
import re
import sqlite3
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
from perfdoctor.capture.redact import mask_command, mask_environment, mask_text

HOST, USER = "host", "user"
_HOME = re.compile(r"/(?:home|Users)/([^/\s\"':]+)")
# Names that are words: replaced everywhere, they would spoil what the recording says.
_ORDINARY = {"localhost", "root", "user", "host", "data", "train", "python", "torch"}

Clean = Callable[[str], str]


def pack(recording: Path, renames: Mapping[str, str]) -> bytes:
    """The recording without secrets and without names, compressed.

    Args:
        recording: a file that ``--recording`` left; it stays as it is.
        renames: beginnings of paths, for instance, and what is to stand for them.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy.perfdoctor")
        with closing(sqlite3.connect(recording)) as whole, closing(sqlite3.connect(copy)) as db:
            whole.backup(db)
            _clean(db, {**_names_in(db), **renames})
            db.commit()
            # What was overwritten is still in the file's free pages until this.
            db.execute("VACUUM")
        return lzma.compress(copy.read_bytes(), preset=9 | lzma.PRESET_EXTREME)


def unpack(packed: Path, to: Path) -> None:
    """Writes the recording that a file of the corpus holds."""
    to.write_bytes(lzma.decompress(packed.read_bytes()))


def _names_in(db: sqlite3.Connection) -> dict[str, str]:
    """The host's name, and those of the people in whose home folders something lies."""
    host = dict(db.execute("SELECT key, value FROM meta")).get("host", "")
    found = {host: HOST, host.split(".")[0]: HOST}
    commands = [command for (command,) in db.execute("SELECT command FROM ProcessSeen")]
    paths = [target for (target,) in db.execute("SELECT DISTINCT target FROM ThreadSample")]
    for text in (*commands, *paths):
        found.update(dict.fromkeys(_HOME.findall(text), USER))
    return {name: word for name, word in found.items() if len(name) > 2 and name not in _ORDINARY}


def _clean(db: sqlite3.Connection, names: Mapping[str, str]) -> None:
    """Masks and renames every text of a recording, those inside of stacks and traces too."""

    def rename(text: str) -> str:
        for name, word in names.items():
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", lambda _, word=word: word, text)
        return text

    @cache
    def clean(text: str) -> str:
        return rename(mask_text(text))

    def environment(text: str) -> str:
        variables = json.loads(text)
        return rename(json.dumps(mask_environment(variables) if variables else variables))

    special: dict[tuple[str, str], Callable[[str], str] | Callable[[bytes], bytes]] = {
        ("ProcessSeen", "command"): lambda command: rename(mask_command(command.split(" "))),
        ("ProcessSeen", "environment"): environment,
        ("StackSegment", "trace"): lambda trace: _repack_stacks(trace, clean),
        ("Profile", "trace"): lambda trace: _repack_profile(trace, clean),
    }
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for _, column, kind, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall():
            if kind in ("TEXT", "BLOB") and (table, column) != ("meta", "key"):
                _rewrite(db, table, column, special.get((table, column), clean))


def _rewrite(db: sqlite3.Connection, table: str, column: str, change: Callable[[str], str]) -> None:  # or of bytes
    cells = db.execute(f'SELECT rowid, "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL').fetchall()
    changed = [(after, rowid) for rowid, before in cells if (after := change(before)) != before]
    db.executemany(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', changed)


def _repack_stacks(trace: bytes, clean: Clean) -> bytes:
    """py-spy's JSON, stored as it is: together the segments are compressed better than each by itself."""
    try:
        events = json.loads(zlib.decompress(trace))
    except (ValueError, zlib.error):
        return b""  # py-spy was killed while it wrote
    return zlib.compress(json.dumps(_cleaned(events, clean), separators=(",", ":")).encode(), 0)


def _repack_profile(trace: bytes, clean: Clean) -> bytes:
    """torch.profiler's JSON, likewise."""
    document = json.loads(gzip.decompress(trace))
    return gzip.compress(json.dumps(_cleaned(document, clean), separators=(",", ":")).encode(), 0, mtime=0)


def _cleaned(value: object, clean: Clean) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item, clean) for item in value]
    if isinstance(value, dict):
        return {clean(key): _cleaned(item, clean) for key, item in value.items()}
    return value
