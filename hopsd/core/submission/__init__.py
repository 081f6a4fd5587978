"""What a user asked for: the job comment, the partitions and the workload."""
