"""`slipway gc` by the stack's own Airflow, while a release plans what retention would delete."""

import json
import time
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from tests.local.chain.own_stack import FOLDER, SPECS, local
from tests.local.chain.whole_chain import MODEL

pytestmark = pytest.mark.timeout(1500)

POLICY = {"schedule": None, "releases_per_model": 1, "days": 0, "evidence_days": 365, "grace_h": 1}
SITE_MAP = ("slipway-site", "slipway")
UNUSED = "f" * 64


@pytest.fixture
def keeping_little(chain, promoted):
    """The stack with an artifact that nothing uses, everything made days ago, and a site that keeps little."""
    if chain.stack is None:
        pytest.skip("needs an object store whose objects a test may make older")
    put_unused(chain)
    make_older(chain, timedelta(days=3))
    before = chain.core.read_namespaced_config_map(*SITE_MAP).data["site.yaml"]
    write_site(chain, yaml.safe_dump(yaml.safe_load(before) | {"retention": POLICY}))
    yield
    write_site(chain, before)


def write_site(chain, text):
    chain.core.patch_namespaced_config_map(*SITE_MAP, {"data": {"site.yaml": text}})


def put_unused(chain):
    """A copy of the live release's own artifact, under a key that no plan has."""
    plan = chain.read(chain.layout.release(MODEL, chain.live()))["plan"]
    source = chain.layout.artifact("publish", plan["stages"]["publish"]["key"])
    client = chain.stack.object_store.client()
    for uri in chain.keys(f"{source}/"):
        bucket, _, key = f"{chain.layout.artifact('publish', UNUSED)}{uri.removeprefix(source)}"[5:].partition("/")
        client.put_object(Bucket=bucket, Key=key, Body=chain.bytes(uri))


def make_older(chain, age):
    """Every object but the channels was written that long ago; the object store reads it when it starts."""
    chain.stack.supervisor.stop(["object-store"])
    index = FOLDER / "object-store" / "kept" / chain.site.object_store.bucket / "index.json"
    written = (datetime.now(UTC) - age).isoformat()
    objects = json.loads(index.read_text())
    for key, described in objects.items():
        if not key.startswith("channels/"):
            described["last_modified"] = written
    index.write_text(json.dumps(objects))
    local("up", FOLDER, "--specs", SPECS)


def test_retention_deletes_what_nothing_names_and_a_release_beside_it_goes_live(chain, keeping_little):
    before = chain.channel()
    stamp = time.time_ns()

    retention = chain.trigger("retention", f"gc-{stamp}", dry_run=False)
    release = chain.trigger(f"release__{MODEL}", f"beside-gc-{stamp}", revision="v2", force=True)
    kept, released = chain.follow(retention), chain.follow(release)

    assert kept.run.state == "success", kept.results
    assert released.run.state == "success", {name: result.summary for name, result in released.results.items()}
    assert chain.keys(f"{chain.layout.artifact('publish', UNUSED)}/") == set()
    parts = kept.results["retention"].data["report"]["parts"]
    reported = [json.loads(line) for part in parts for line in chain.bytes(part).splitlines()]
    assert any(UNUSED in json.dumps(line) for line in reported)
    channel = chain.channel()
    assert channel["history"][0]["run"] == released.results["plan"].run != before["history"][0]["run"]
    for entry in (channel["live"], *channel["previous"]):
        plan = chain.read(entry["release_uri"])["plan"]
        assert chain.manifest("publish", plan["stages"]["publish"]["key"]), entry["release_id"]
    assert chain.ask()
