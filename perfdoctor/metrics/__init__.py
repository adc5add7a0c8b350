"""Metrics: what is measured beside the account, for findings and reports."""
