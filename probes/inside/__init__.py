"""Looks at a training process from inside: marks at the borders of its phases, written to memory that a sidecar reads.

Everything here runs in the user's process. It is standard library, torch only inside functions, and never raises into
the training loop.
"""
