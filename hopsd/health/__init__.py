"""Find slow servers and servers that break jobs from the records of ordinary trainings."""
