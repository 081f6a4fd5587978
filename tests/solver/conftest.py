"""Puts this folder on the path, as the folders below share `instances` and `programs`."""
