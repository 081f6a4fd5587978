"""Notifies people unasked about jobs that ended, failed, lost GPUs or are stuck."""
