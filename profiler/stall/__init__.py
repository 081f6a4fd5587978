"""Detects a stalled training and writes its stacks. Needs no ptrace."""
