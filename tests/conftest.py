import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ["fixtures_postgres", "fixtures_cluster", "fixtures_accounting"]

# How fast a busy machine draws or runs an example is no property of what is tested.
settings.register_profile("hops", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hops")

# A shell that runs tests in the background lets them ignore Ctrl-C, and so would every program that
# they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
