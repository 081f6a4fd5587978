"""Commands for everyone."""
