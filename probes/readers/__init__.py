"""Readers: files, tables and interfaces of the system that probes look into."""
