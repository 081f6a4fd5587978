"""What a user asked for: the comment, the partitions, which training it is."""
