"""A training that is stopped and moved between numbers of ranks, against the unbroken one."""
