"""Virtual clock and cluster behind the same port as the daemon's."""
