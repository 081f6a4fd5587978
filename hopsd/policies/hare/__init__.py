"""Hare (Chen et al., HPDC 2022): scheduling the tasks of many jobs on heterogeneous GPUs."""
