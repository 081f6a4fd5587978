"""Its folder is on the path: the rooms below share `two_types`."""
