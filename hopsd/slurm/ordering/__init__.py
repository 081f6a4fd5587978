"""The order that users ask for: dependencies, and the tasks of job arrays."""
