"""Readers that may block: they run in worker processes."""
