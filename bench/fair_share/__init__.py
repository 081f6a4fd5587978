"""Users with shares over a simulated week: how far each ends up from its share."""
