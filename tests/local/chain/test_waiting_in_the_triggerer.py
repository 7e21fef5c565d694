"""A release whose tasks wait for their pods in the triggerer, as with `airflow.deferrable` of the site, while the triggerer is
killed and while the stack's own Airflow runs `slipway gc`, which would delete what the release plans."""

import json
import os
import signal
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from slipway.airflow.runs import run_identity
from slipway.cli.airflow.session import Session
from slipway.cli.runs.follow import RunView
from tests.local.chain.own_stack import FOLDER
from tests.local.chain.whole_chain import MODEL
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(3600)

# this file comes after test_releases.py, which has made what this one serves
DAG = f"release__{MODEL}"
POLICY = {"schedule": None, "releases_per_model": 1, "days": 0, "evidence_days": 365, "grace_h": 1}
SITE_MAP = ("slipway-site", "slipway")
UNUSED = "f" * 64


@dataclass(frozen=True)
class Deferred:
    """The two runs as they ended, the steps of the release's pods, the triggerer that was killed, and the channel before."""

    release: RunView
    retention: RunView
    steps: list[str]
    killed: int
    before: dict


@pytest.fixture(scope="module")
def deferrable(chain, promoted):
    """The site file, which each task's process reads, defers tasks."""
    if chain.stack is None:
        pytest.skip("needs an Airflow whose site file a test may change")
    before = chain.stack.site_file.read_text()
    write_site(chain, yaml.safe_dump(yaml.safe_load(before) | {"airflow": {"deferrable": True}}))
    yield
    write_site(chain, before)


@pytest.fixture(scope="module")
def keeping_little(chain, promoted):
    """The stack with an artifact that nothing uses, everything made days ago, and a site that keeps little."""
    if chain.stack is None:
        pytest.skip("needs an object store whose objects a test may make older")
    put_unused(chain)
    make_older(chain, timedelta(days=3))
    before = chain.stack.site_file.read_text()
    write_site(chain, yaml.safe_dump(yaml.safe_load(before) | {"retention": POLICY}))
    yield
    write_site(chain, before)


@pytest.fixture(scope="module")
def deferred(chain, keeping_little, deferrable):
    """A release of what retention would delete, beside retention; the triggerer is killed while it waits for a pod."""
    before, stamp = chain.channel(), time.time_ns()
    run_id = f"beside-gc-{stamp}"
    with chain.counting_pods(run=run_identity(run_id)) as pods:
        retention = chain.trigger("retention", f"gc-{stamp}", dry_run=False)
        run = chain.trigger(DAG, run_id, revision=chain.other_revision())
        until(lambda: "deferred" in chain.task_states(run).values(), timeout_s=600)
        pid = chain.stack.status()["triggerer"].pid
        os.kill(pid, signal.SIGKILL)
        kept, released = chain.follow(retention), chain.follow(run)
    return Deferred(released, kept, list(pods.steps.values()), pid, before)


def write_site(chain, text):
    """Give Airflow and the steps the same site file."""
    chain.stack.site_file.write_text(text)
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
    index = FOLDER / "object-store" / "kept" / chain.site.object_store.bucket / "index.jsonl"
    written = (datetime.now(UTC) - age).isoformat()
    lines = [json.loads(line) for line in index.read_text().splitlines()]
    for key, described in (entry for line in lines for entry in line.items() if entry[1]):
        if not key.startswith("channels/"):
            described["last_modified"] = written
    index.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    chain.up()


def tries_that_airflow_took(chain, run):
    """Count, by task, the tries that Airflow took by mistake.

    Its scheduler fails a resumed task if it learns only then that the task's first process has ended, which it did to be
    deferred (https://github.com/apache/airflow/issues/72716; 3.3.2). On a busy machine it learns that late.
    """
    query = {"dag_id": run.dag_id, "run_id": run.run_id, "event": "state mismatch"}
    with closing(Session(chain.airflow.address, chain.login)) as session:
        answer = session.send("GET", "/api/v2/eventLogs", params=query)
    entries = answer.json()["event_logs"]  # of a process that was killed: finished with state failed
    return Counter(entry["task_id"] for entry in entries if "finished with state success" in entry["extra"])


def test_a_release_whose_tasks_are_deferred_survives_a_kill_of_the_triggerer(chain, deferred):
    view = deferred.release

    assert view.run.state == "success", chain.said(view)
    assert chain.stack.status()["triggerer"].pid not in (0, deferred.killed)
    assert max(Counter(deferred.steps).values()) == 1
    repeated = {name: task.try_number - 1 for name, task in view.tasks.items() if task.try_number > 1}
    assert repeated == tries_that_airflow_took(chain, view.run)


def test_retention_deletes_what_nothing_names_and_a_release_beside_it_goes_live(chain, deferred):
    kept, released = deferred.retention, deferred.release

    assert kept.run.state == "success", kept.results
    assert chain.keys(f"{chain.layout.artifact('publish', UNUSED)}/") == set()
    parts = kept.results["retention"].data["report"]["parts"]
    reported = [json.loads(line) for part in parts for line in chain.bytes(part).splitlines()]
    assert any(UNUSED in json.dumps(line) for line in reported)
    channel = chain.channel()
    assert channel["history"][0]["run"] == released.results["plan"].run != deferred.before["history"][0]["run"]
    for entry in (channel["live"], *channel["previous"]):
        plan = chain.read(entry["release_uri"])["plan"]
        assert chain.manifest("publish", plan["stages"]["publish"]["key"]), entry["release_id"]
    assert chain.ask()
