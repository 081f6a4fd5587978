"""How fast a job would run: tables, measured layers and the theory of one iteration."""
