"""The backup of docs/admin.md restores everything that was dumped."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hopsd.model.ids import UserName
from hopsd.store.postgres import PostgresStore

pytestmark = pytest.mark.skipif(shutil.which("pg_dump") is None, reason="needs pg_dump")


@pytest.mark.slow
def test_a_dump_is_restored_completely(database: str, tmp_path: Path) -> None:
    user, dump = UserName("ann"), tmp_path / "hops.dump"

    def save(kind: str) -> None:
        with PostgresStore(database) as store:
            store.save_mail_kinds(user, [kind])

    save("done")
    command = ["pg_dump", "--format=custom", f"--file={dump}", f"--dbname={database}"]
    subprocess.run(command, check=True)
    save("stuck")
    command = ["pg_restore", "--clean", "--if-exists", f"--dbname={database}", str(dump)]
    subprocess.run(command, check=True)
    with PostgresStore(database) as store:
        assert store.mail_kinds(user) == ("done",)
