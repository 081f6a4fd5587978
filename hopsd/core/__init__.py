"""The scheduling algorithm as pure functions. Imports ``hopsd.model`` only."""
