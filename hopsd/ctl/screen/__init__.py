"""What hopsctl shows while it lasts: progress bars, and the screen of `hopsctl top`."""
