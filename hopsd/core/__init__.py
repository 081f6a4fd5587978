"""The scheduling algorithm as pure functions. Imports only ``hopsd.model`` and ``hopsd.errors``."""
