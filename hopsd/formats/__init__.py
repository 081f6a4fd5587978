"""The neutral JSON files: strict readers and writers. Their schemas are in docs/schema."""
