import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The matrices are small. OpenBLAS's threads then only wait for each other, which takes more
# processor time than all the rest of health's tests. It reads this when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

pytest_plugins = ["fixtures_postgres", "fixtures_cluster", "fixtures_accounting"]

# The time that a busy machine takes for an example says nothing about the code under test.
settings.register_profile("hops", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("hops"), max_examples=10)
settings.load_profile("hops")

# A shell that runs tests in the background makes them ignore Ctrl-C, and with them every program
# that they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, and spare it what was collected: modules and tests
    live until the end, and looking through them took a seventh of the collection's time.
    """
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked ``long`` by default: the others take some ten minutes on two cores."""
    # Jobs that tests submit inherit the environment, and some print its HOPS_* variables.
    if os.environ.pop("HOPS_LONG", ""):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="takes long: make test-long"))


@pytest.fixture(autouse=True)
def _environment_as_before() -> Iterator[None]:
    """Restore the environment: what the timing plugin leaves there is for child processes, not for
    the jobs that the next test submits.
    """
    before = {name for name in os.environ if name.startswith("HOPS_")}
    yield
    for name in [name for name in os.environ if name.startswith("HOPS_")]:
        if name not in before:
            del os.environ[name]
