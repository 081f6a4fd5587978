"""Hare (Chen et al., HPDC 2022): tasks of many jobs on GPUs of different speed."""
