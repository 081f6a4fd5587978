"""hopsctl in a shell: completion, and man pages."""
