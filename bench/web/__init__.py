"""The web page: how long its answers take, and its pictures for the documentation."""
