"""What a simulation tells its policies: by its settings, and in its jobs' comments."""
