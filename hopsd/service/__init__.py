"""The daemon process: clock, signals, and the state between ticks."""
