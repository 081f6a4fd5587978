"""hopsctl in a shell: what the Tab key offers, and man pages."""
