"""Sessions that somebody waits for: where they start, who makes room, and when they end."""
