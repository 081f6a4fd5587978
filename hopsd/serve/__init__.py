"""What people and tools may ask hopsd."""
