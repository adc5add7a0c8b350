"""perfdoctor: says why a PyTorch training job is slow, with proof, and what to change."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfdoctor.api import diagnose, phase

__version__ = "0.1.0"

__all__ = ["__version__", "diagnose", "phase"]


def __getattr__(name: str) -> object:
    """``diagnose`` and ``phase`` are loaded when they are first asked for: importing perfdoctor stays nearly free."""
    if name in ("diagnose", "phase"):
        import perfdoctor.api

        return getattr(perfdoctor.api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
