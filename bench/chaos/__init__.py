"""Inject faults into a live private cluster with two hopsd, and check the invariants."""
