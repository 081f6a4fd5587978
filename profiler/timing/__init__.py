"""Measures a training and reports it."""
