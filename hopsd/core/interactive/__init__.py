"""Interactive sessions: where they start, which jobs make room, and when they end."""
