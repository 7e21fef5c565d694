"""The database of an Airflow on a laptop: made once for all stacks, and never lost."""

import sqlite3
import stat
from contextlib import closing

from local.airflow.services import AirflowServices
from local.stack import ENVIRONMENTS
from tests.support.paths import REPOSITORY


def prepared(folder):
    AirflowServices(folder, ENVIRONMENTS, REPOSITORY, (8080, 8081), {}).prepare()
    return folder / "airflow.db"


def pools(database):
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("select pool from slot_pool order by pool").fetchall()


def test_each_stack_has_a_private_copy_of_its_own(tmp_path):
    first, second = prepared(tmp_path / "first"), prepared(tmp_path / "second")
    with closing(sqlite3.connect(first)) as connection, connection:
        connection.execute("insert into slot_pool (pool, slots, include_deferred) values ('mine', 1, 0)")

    assert pools(first) == [("default_pool",), ("mine",)]
    assert pools(second) == [("default_pool",)]
    assert stat.S_IMODE(second.stat().st_mode) == 0o600


def test_a_database_of_another_version_is_migrated_in_place(tmp_path):
    database = prepared(tmp_path)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("insert into slot_pool (pool, slots, include_deferred) values ('mine', 1, 0)")
    (tmp_path / "migrated-for").write_text("an older lock")

    prepared(tmp_path)

    assert pools(database) == [("default_pool",), ("mine",)]
    assert (tmp_path / "migrated-for").read_text() != "an older lock"
