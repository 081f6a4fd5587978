"""Which servers are slow, and which break jobs, judged from ordinary trainings' records."""
