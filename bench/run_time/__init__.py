"""Accuracy of run-time predictions, and their effect on every policy."""
