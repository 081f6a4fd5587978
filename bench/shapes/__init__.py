"""Predicted against measured throughput on every shape of a live cluster (the paper's figure 6)."""
