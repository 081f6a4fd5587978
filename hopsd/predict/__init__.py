"""When jobs start and end: what is known of them now in, distributions out."""
