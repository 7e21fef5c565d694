"""`slipway doctor` asks every service that a release needs, and says what to do about what does not work."""

import json

import pytest
import yaml

from slipway.cli.settings import Settings
from slipway.tasks.adapters.store.object_store import DeniedError, LostRaceError
from slipway.tasks.contracts.stored.artifact import Layout
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml


class Whole:
    """A cluster and a store with all that a site needs."""

    namespace = "serving"
    gpus, used, hard, absent, claim = 8, "1", "9", (), "Bound"

    def find(self, kind, labels, *, namespace=None):
        # Role slipway-user, and what docs/command.md asks for besides
        assert kind in {"EndpointSlice", "Pod", "Service", "ResourceQuota", "PersistentVolumeClaim"}
        statuses = {
            "ResourceQuota": {"used": {"cpu": self.used}, "hard": {"cpu": self.hard}},
            "PersistentVolumeClaim": {"phase": self.claim},
        }
        metadata = {"namespace": namespace, "name": "models"}
        return [{"metadata": metadata, "status": statuses[kind]}] if kind in statuses else []

    def has_kind(self, kind):
        return kind not in self.absent

    def get(self, kind, name):
        assert kind == "Lease"

    def nodes(self, labels):
        return [{"status": {"allocatable": {"nvidia.com/gpu": str(self.gpus)}}}]


@pytest.fixture
def site_of_gpus(tmp_path, airflow, monkeypatch):
    """A site with a GPU and servers over several nodes, whose Hub is any HTTP server, with a cluster and a store."""
    document = load_yaml((REPOSITORY / "sites" / "eks.yaml").read_text())
    gateway = {"name": "inside", "namespace": "gateways"}
    hosts = {"host": "{name}.example.com", "grpc_host": "{name}.grpc.example.com"}
    document["serving"] = document.get("serving", {}) | {"routes": {"kind": "gateway", "gateway": gateway, **hosts}}
    document["hub"] = {"endpoint": airflow.address}
    for gpu in document["gpus"].values():
        gpu.pop("nodes", None)
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(document))
    cluster, store = Whole(), ConditionalWrites()
    monkeypatch.setattr(Settings, "cluster", lambda _: cluster)
    monkeypatch.setattr(Settings, "store", lambda _: (store, Layout("s3://b/p")))
    return str(tmp_path / "site.yaml"), cluster, store


class ConditionalWrites:
    """One object of a store that keeps the conditions of writes, or ignores them."""

    keeps = allowed = True
    etag = None

    def put_if(self, uri, data, *, etag):
        if not self.allowed:
            raise DeniedError("the store rejects the credentials")
        if self.keeps and etag != self.etag:
            raise LostRaceError("changed")
        self.etag = f'"{data.hex()}"'
        return self.etag

    def delete(self, uris):
        self.etag = None
        return {}


def findings(slipway, file):
    code, printed = slipway("doctor", "--site", file, "--json")
    return code, {each["name"]: each for each in json.loads(printed.out)["checks"]}


def test_the_doctor_finds_that_everything_works(slipway, site_of_gpus):
    code, found = findings(slipway, site_of_gpus[0])

    assert code == 0, found
    assert "scheduler" in found["airflow"]["text"]
    assert "conditional writes work" in found["object store"]["text"]
    assert "8 NVIDIA-L4" in found["gpu nodes"]["text"]
    assert "LeaderWorkerSet" in found["kinds"]["text"]
    assert all(not each["remedy"] for each in found.values())


@pytest.mark.parametrize(
    ("part", "change", "name", "told"),
    [
        (1, {"gpus": 0}, "gpu nodes", "GPU feature discovery"),
        (1, {"used": "9"}, "quotas", "Raise it"),
        (1, {"used": "12"}, "quotas", "uses 12 of 9 cpu"),
        (1, {"used": "2", "hard": "2000m"}, "quotas", "uses 2 of 2000m cpu"),
        (1, {"claim": "Pending"}, "volumes", "models is Pending"),
        (1, {"absent": ("LeaderWorkerSet",)}, "kinds", "docs/cluster-setup.md"),
        (1, {"absent": ("GRPCRoute",)}, "kinds", "no GRPCRoute"),
        (2, {"allowed": False}, "object store", "rejects the credentials"),
        (2, {"keeps": False}, "object store", "conditions"),
    ],
)
def test_the_doctor_says_what_to_do_about_what_does_not_work(slipway, site_of_gpus, part, change, name, told):
    for attribute, value in change.items():
        setattr(site_of_gpus[part], attribute, value)

    code, found = findings(slipway, site_of_gpus[0])

    assert (code, [each["name"] for each in found.values() if each["exit_code"]]) == (65, [name])
    assert told in found[name]["text"] + found[name]["remedy"]


def test_a_quota_of_nothing_is_a_ban_and_not_full(slipway, site_of_gpus):
    site_of_gpus[1].used = site_of_gpus[1].hard = "0"

    assert findings(slipway, site_of_gpus[0])[0] == 0


def test_the_doctor_without_a_site_or_an_airflow_says_so_and_goes_on(slipway, monkeypatch):
    monkeypatch.setenv("SLIPWAY_AIRFLOW", "http://127.0.0.1:1")

    code, printed = slipway("doctor")

    assert code == 75
    assert "fails  site          no site is known" in printed
    assert "fails  airflow       Airflow at http://127.0.0.1:1 does not answer" in printed
    assert "→ Set SLIPWAY_SITE" in printed
