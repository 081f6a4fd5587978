"""What jobs say of themselves, as far as it can be believed."""
