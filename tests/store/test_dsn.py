"""What a connection string says about where the database is."""

from __future__ import annotations

import pytest

from hopsd.errors import ConfigError
from hopsd.store.connection import local_database


@pytest.mark.parametrize(
    ("dsn", "database"),
    [
        ("dbname=hops", "hops"),
        ("host=/run/postgresql dbname=hops", "hops"),
        ("host=/run/postgresql user=ann", "ann"),
        ("host=/run/postgresql", "slurm"),
        ("host=db1 dbname=hops", None),
        ("hostaddr=10.0.0.1 dbname=hops", None),
        ("postgresql://db1/hops", None),
        ("postgresql:///hops", "hops"),
    ],
)
def test_a_database_is_local_unless_a_host_is_named(dsn: str, database: str | None) -> None:
    """Only for a local database does `hopsctl setup` say how to create it."""
    assert local_database(dsn, "slurm") == database


def test_an_invalid_connection_string_is_refused() -> None:
    with pytest.raises(ConfigError, match="accepted for example: host=/run/postgresql"):
        local_database("the database", "slurm")
