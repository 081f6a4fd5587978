from hypothesis import HealthCheck, settings

pytest_plugins = ["fixtures_postgres", "fixtures_cluster"]

# How fast a busy machine draws or runs an example is no property of what is tested.
settings.register_profile("hops", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hops")
