"""Predictions that a daemon would make during a simulation, next to what really happens."""
