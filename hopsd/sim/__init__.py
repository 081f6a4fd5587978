"""The simulator: a virtual clock and cluster behind the daemon's own port."""
