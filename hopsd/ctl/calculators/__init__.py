"""Commands that calculate from their arguments or a file, and ask nobody."""
