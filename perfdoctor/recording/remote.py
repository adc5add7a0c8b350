"""Files behind a URL: whatever fsspec reaches."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfdoctor.errors import PerfDoctorError

_ERRORS = (("aiohttp", "ClientError"), ("botocore.exceptions", "BotoCoreError"))


def is_url(address: str) -> bool:
    """Whether an address is a URL, and not a path."""
    return "://" in address


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Says in one sentence what is in the way of reading a URL.

    Raises:
        PerfDoctorError: it cannot be read.
    """
    try:
        yield
    except FileNotFoundError:
        raise PerfDoctorError(f"There is nothing at {url}.", hint="Check the URL.") from None
    except errors() as error:
        raise PerfDoctorError(
            f"{url} cannot be read: {reason_of(error)}.", hint="Check the URL, and the right to read it."
        ) from None


def reason_of(error: Exception) -> str:
    """What is wrong, in a line without a full stop."""
    system = error.strerror if isinstance(error, OSError) else None
    return (system or str(error).partition("\n")[0] or type(error).__name__).rstrip(".")


def errors() -> tuple[type[Exception], ...]:
    """What reading and writing raise: fsspec's own errors, and those of the libraries behind it that are loaded."""
    return OSError, *(getattr(sys.modules[module], name) for module, name in _ERRORS if module in sys.modules)


def file_system(url: str) -> Any:
    """What reads and writes the files of a URL, by its scheme.

    Raises:
        PerfDoctorError: fsspec is not installed, or what it needs for this one.
    """
    try:
        import fsspec
    except ImportError:
        hint = "pip install 'perfdoctor[remote]' (fsspec; s3fs for s3://, gcsfs for gs://, adlfs for abfs://)"
        raise PerfDoctorError(f"{url} needs fsspec, which is not installed.", hint=hint) from None
    protocol = url.partition("://")[0]
    try:
        return fsspec.filesystem(protocol)
    except (ImportError, ValueError) as error:
        raise PerfDoctorError(
            f"{url} cannot be reached: {error}.", hint="Install what fsspec names, or use a folder."
        ) from None


@contextmanager
def at_hand(address: str) -> Iterator[Path]:
    """A file as one on this machine: itself, or a copy for as long as it is needed.

    Raises:
        PerfDoctorError: it cannot be read.
    """
    if not is_url(address):
        yield Path(address)
        return
    files = file_system(address)
    with tempfile.TemporaryDirectory(prefix="perfdoctor-") as folder:
        copy = Path(folder) / address.rstrip("/").rpartition("/")[2]
        with reaching(address):
            files.get_file(files._strip_protocol(address), str(copy))
        yield copy
