"""Its folder is on the path: the rooms below share `instances` and `programs`."""
