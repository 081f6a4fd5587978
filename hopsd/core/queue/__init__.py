"""Whose turn it is: history, priority, the service window and profile runs."""
