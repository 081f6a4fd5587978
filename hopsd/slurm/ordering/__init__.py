"""What keeps a job back by its user's wish: dependencies, and the order of an array's tasks."""
