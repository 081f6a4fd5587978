"""Programs that measure the cluster itself."""
