"""Users with shares over a simulated week: how far each got from its share."""
