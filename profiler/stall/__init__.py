"""Detects a stalled training and writes its stacks, without ptrace."""
