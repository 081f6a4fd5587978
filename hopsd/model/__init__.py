"""Frozen values that cross module boundaries. Imports only ``hopsd.errors``.

Times are seconds since the epoch or seconds of duration (``*_seconds``), sizes are GPUs,
throughput is samples per second per GPU unless a name says otherwise.
"""
