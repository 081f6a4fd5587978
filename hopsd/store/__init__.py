"""PostgreSQL. Nothing outside this package imports psycopg."""
