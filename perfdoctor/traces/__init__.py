"""Profiler traces: what they show of a job, accounted for by cause.

The files in the order in which a trace goes through them:

1. From bytes to columns: ``decode``, ``events``, ``columns``, ``model`` (a trace), ``reader``.
2. What device and host did when: ``intervals``, ``steps``, ``device``, ``host``, ``idle``, ``host_only``,
   ``communication``.
3. One rank: ``account`` (its time by cause), ``call_sites``, ``flops``, ``roofline``, ``statistics``, ``kernel_stats``,
   ``interference``, ``coverage``, and ``rank``, which keeps what the others need of it.
4. All ranks together: ``collectives``, ``matching``, ``stragglers``, ``rank_merge``.
"""
