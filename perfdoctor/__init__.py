"""perfdoctor: says why a PyTorch training job is slow, with proof, and what to change."""

__version__ = "0.1.0"

__all__ = ["__version__"]
