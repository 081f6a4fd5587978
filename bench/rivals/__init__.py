"""The rivals' own experiments, from the folders that their authors published."""
