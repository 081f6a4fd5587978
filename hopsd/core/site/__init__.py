"""What a site's accounts, QOS and partitions let jobs have, told to the plan."""
