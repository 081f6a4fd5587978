"""What one round is: observe, decide, carry out, recover."""
