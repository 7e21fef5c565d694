"""`slipway key` over a cluster in memory: what is printed once, what is stored, and what is revoked."""

import base64
from datetime import UTC, datetime

import pytest

from slipway.cli.cluster.key import create, key_table, revoke
from slipway.tasks.adapters.kube.key_secret import KeySecret
from slipway.tasks.contracts.api_keys import sha256_of_key
from tests.fakes.clock import ManualClock
from tests.fakes.kube.cluster import MemoryCluster
from tests.support.paths import REPOSITORY
from tests.support.refused import refused

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


@pytest.fixture
def cluster():
    return MemoryCluster(ManualClock())


@pytest.fixture
def stored(cluster):
    return KeySecret(cluster, "slipway-api-keys")


def text_of(cluster):
    return base64.b64decode(cluster.get("Secret", "slipway-api-keys")["data"]["keys"]).decode()


def test_the_cluster_has_the_hash_of_a_key_and_not_the_key(cluster, stored):
    made, secret = create(stored, "alice", 90, NOW)

    assert stored.keys() == [made]
    assert made.expires == "2027-02-25T12:00:00Z"
    assert sha256_of_key(secret) in text_of(cluster)
    assert secret not in text_of(cluster)


def test_a_key_is_replaced_by_another_one_of_its_name(stored):
    old, _ = create(stored, "alice", None, NOW)
    new, _ = create(stored, "alice", None, NOW)

    assert revoke(stored, "alice", old.id) == [old]
    assert stored.keys() == [new]


def test_all_keys_of_a_name_are_revoked_and_no_others(stored):
    create(stored, "alice", None, NOW)
    other, _ = create(stored, "bob", None, NOW)
    create(stored, "alice", None, NOW)

    assert len(revoke(stored, "alice", None)) == 2
    assert stored.keys() == [other]


def test_a_revocation_that_finds_nothing_makes_no_secret(cluster, stored):
    with refused(what="there is no key alice"):
        revoke(stored, "alice", None)

    assert cluster.get("Secret", "slipway-api-keys") is None


@pytest.mark.parametrize(("name", "key_id"), [("carol", None), ("alice", "00000000")])
def test_a_key_that_does_not_exist_is_not_revoked(stored, name, key_id):
    made, _ = create(stored, "alice", None, NOW)

    with refused(what=f"there is no key {name}", remedy="slipway key list"):
        revoke(stored, name, key_id)
    assert stored.keys() == [made]


def test_lines_that_are_no_keys_stay(cluster, stored):
    stored._write("# of the platform team", None)

    create(stored, "alice", None, NOW)
    revoke(stored, "alice", None)

    assert text_of(cluster) == "# of the platform team\n"


def test_the_list_shows_names_ids_and_what_has_expired(stored):
    made, _ = create(stored, "alice", 1, NOW)

    cells = [list(column.cells) for column in key_table(stored.keys(), datetime(2026, 12, 1, tzinfo=UTC)).columns]

    assert cells == [["alice"], [made.id], [made.created], [f"{made.expires} (expired)"]]


def test_a_site_without_authentication_has_no_keys(slipway):
    code, printed = slipway("--site", str(REPOSITORY / "sites" / "local.yaml"), "key", "list")

    assert code == 65
    assert "asks for no API keys" in printed
