"""Where a job could go: shapes, configurations and the integer program over them."""
