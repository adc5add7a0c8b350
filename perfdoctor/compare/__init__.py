"""Comparing what was measured: estimates with their errors, and two runs of a job, before and after a change."""
