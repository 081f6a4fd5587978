"""Programs that measure the cluster."""
