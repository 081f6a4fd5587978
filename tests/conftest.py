pytest_plugins = ["fixtures_postgres", "fixtures_cluster"]
