"""What reports teach: read, checked, fitted and remembered."""
