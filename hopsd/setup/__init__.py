"""Installs hops on a controller, step by step, and undoes the installation."""
