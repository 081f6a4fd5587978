"""Gavel (OSDI 2020): shares of time on each GPU type."""
