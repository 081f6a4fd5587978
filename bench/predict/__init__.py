"""Measures how well starts and ends are predicted."""
