"""Fixes that are tried: `perfdoctor treat` runs a job again and again, each time with one setting changed."""
