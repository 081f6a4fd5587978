"""Scheduling policies: one file each, one protocol."""
