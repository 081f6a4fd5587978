"""Notices a training that stands still, and writes its stacks. Needs no ptrace."""
