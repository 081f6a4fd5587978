"""Turns a reading of the cluster into a snapshot for a policy."""
