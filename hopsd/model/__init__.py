"""Frozen values that cross module boundaries. Imports no other part of hopsd but its errors.

Times are seconds since the epoch or seconds of duration (``*_seconds``), sizes are GPUs,
throughput is samples per second per GPU unless a name says otherwise.
"""
