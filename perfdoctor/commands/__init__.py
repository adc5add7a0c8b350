"""Subcommands, one per file."""
