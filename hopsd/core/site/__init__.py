"""What a site's accounts, QOS and partitions allow jobs, as input to the plan."""
