"""What the timing plugin costs a training, and other Python programs of its job."""
