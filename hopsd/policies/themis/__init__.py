"""Themis (NSDI 2020) and the schedulers that its paper compares it with."""
