"""The queue: job history, priority, the service window and profile runs."""
