"""Learning from reports: read, validated, fitted and stored."""
