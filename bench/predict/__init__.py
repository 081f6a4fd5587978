"""How well starts and ends are predicted."""
