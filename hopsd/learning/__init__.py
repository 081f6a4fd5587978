"""Learns from jobs' reports: reads, validates, fits and stores them."""
