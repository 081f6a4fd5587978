"""Scheduling policies behind one protocol."""
