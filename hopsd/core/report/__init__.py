"""What jobs report about themselves, parsed and validated."""
