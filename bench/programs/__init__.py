"""Public training programs, timed by the plugin and by manual clocks in a copy."""
