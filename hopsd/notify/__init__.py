"""What hops tells people by itself: jobs that ended, failed, lost GPUs or are stuck."""
