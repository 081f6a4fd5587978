"""Puts its folder on the path: the folders below share `instances` and `programs`."""
