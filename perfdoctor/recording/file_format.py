"""How a recording's file is known, and which of its tables may be missing."""

from typing import get_args

from perfdoctor.recording import own_source, schema

# Grows when an older perfdoctor could no longer read a recording; a table that is added does not count.
FORMAT = 1
# Tables that came after the first recordings of this format; where they are missing, nobody looked.
ADDED: frozenset[type[schema.Sample]] = frozenset(
    {
        schema.CountedCall,
        schema.FlightDump,
        schema.LoaderSample,
        schema.Mark,
        schema.Profile,
        schema.SerialMark,
        schema.StackMissed,
        schema.TraceCost,
        schema.TrialSeen,
        schema.WaitSeen,
        *get_args(own_source.OwnSource),
    }
)
MAGIC = 0x70646F63  # "pdoc", SQLite's application_id


def is_recording(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes, 72 or more, is a recording (sqlite.org/fileformat.html, 1.3)."""
    return beginning.startswith(b"SQLite format 3") and beginning[68:72] == MAGIC.to_bytes(4, "big")
