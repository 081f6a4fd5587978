"""Public training programs, timed by the plugin and by clocks put into a copy of them by hand."""
