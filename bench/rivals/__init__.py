"""The rivals' own experiments, read from the folders that their authors published."""
