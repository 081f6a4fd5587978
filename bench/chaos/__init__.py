"""Faults upon a live private cluster with two hopsd, and a judge of what came of it."""
