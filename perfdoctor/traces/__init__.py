"""Profiler traces: read, accounted for, and made into a diagnosis of level *traced*."""
