"""The drill of docs/disaster.md for Airflow's database, whose release meets more than that loss.

Its tasks wait for their pods in the triggerer, as with `airflow.deferrable` of the site, and the triggerer is killed; beside
it the stack's own Airflow runs `slipway gc`.
"""

import contextlib
import json
import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from slipway.airflow.runs import run_identity
from slipway.cli.airflow.api import NoSuchDagError
from slipway.cli.airflow.session import Session
from slipway.cli.runs.follow import RunView
from tests.local.chain.disaster import commands, give, slipway
from tests.local.chain.killed_airflow import kill_all
from tests.local.chain.own_stack import FOLDER
from tests.local.chain.whole_chain import MODEL
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(3600)

# this file comes after test_releases.py, which has made what this one serves
DAG = f"release__{MODEL}"
LOST_RUN = "lost-with-the-database"
AIRFLOW = ["scheduler", "triggerer", "dag-processor", "api-server", "execution-api"]
POLICY = {"schedule": None, "releases_per_model": 1, "days": 0, "evidence_days": 365, "grace_h": 1}
SITE_MAP = ("slipway-site", "slipway")
UNUSED = "f" * 64


@dataclass(frozen=True)
class State:
    """What must not change while Airflow is gone."""

    channel: dict
    service: tuple
    answers: bool


@dataclass(frozen=True)
class Recovered:
    """The state before and after the loss, who had the model's lease then and whether Airflow knew of any run; the runs as
    they ended, the steps of the release's pods, the triggerer that was killed, and the channel after the release."""

    before: State
    without: State
    holder: str
    history: str
    given: dict
    release: RunView
    retention: RunView
    steps: list[str]
    killed: int
    channel: dict


@pytest.fixture(scope="module")
def recovered(chain, promoted):
    """A release by a new Airflow beside retention; the triggerer is killed while it waits."""
    if chain.stack is None:
        pytest.skip("needs a stack that a test may destroy")
    put_unused(chain)
    before = state(chain)
    lose_database(chain)
    make_older(chain, timedelta(days=3))
    chain.up()
    without, holder, history = state(chain), chain.lease_holder().dag_run, until(lambda: history_of_runs(chain))
    asked = commands("Airflow's database is lost")
    with (
        site_with(chain, retention=POLICY, airflow={"deferrable": True}),
        chain.counting_pods(model=MODEL) as pods,
        ThreadPoolExecutor(1) as person,
    ):
        given = person.submit(give, chain, asked, release=["--revision", chain.other_revision()])

        def seen(look):
            """What `look` finds while the command goes on."""
            found = until(lambda: look() or (given.done() and given), timeout_s=600)
            assert found is not given, given.result()
            return found

        (run,) = seen(lambda: chain.airflow.runs(DAG, 1))
        retention = chain.trigger("retention", "beside-the-release", dry_run=False)
        seen(lambda: "deferred" in chain.task_states(run).values())
        pid = chain.stack.status()["triggerer"].pid
        os.kill(pid, signal.SIGKILL)
        said, kept, released = given.result(), chain.follow(retention), chain.follow(run)
    steps = pods.steps_of(run_identity(run.run_id))
    return Recovered(before, without, holder, history, said, released, kept, steps, pid, chain.channel())


def state(chain):
    return State(chain.channel(), chain.live_service(), chain.ask())


def lose_database(chain):
    """Kill all of Airflow as soon as a run has the model, and delete what it kept."""
    chain.trigger(DAG, LOST_RUN, revision=chain.other_revision())
    until(chain.lease_holder, timeout_s=400)
    chain.stack.supervisor.stop(AIRFLOW)
    kill_all(chain.stack.airflow)
    for file in chain.stack.airflow.folder.glob("airflow.db*"):
        file.unlink()


def history_of_runs(chain):
    """Whether Airflow has runs of the model; None until it has read the DAG."""
    with contextlib.suppress(NoSuchDagError):
        return "runs" if chain.airflow.runs(DAG, 1) else "empty"
    return None


@contextlib.contextmanager
def site_with(chain, **changes):
    """Give Airflow and the steps another site file within the block: each of their processes reads it when it starts."""
    before = chain.stack.site_file.read_text()
    write_site(chain, yaml.safe_dump(yaml.safe_load(before) | changes))
    try:
        yield
    finally:
        write_site(chain, before)


def write_site(chain, text):
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
    """Every object but the channels was written that long ago; the object store, which ends, reads it when it starts."""
    chain.stack.supervisor.stop(["object-store"])
    index = FOLDER / "object-store" / "kept" / chain.site.object_store.bucket / "index.jsonl"
    written = (datetime.now(UTC) - age).isoformat()
    lines = [json.loads(line) for line in index.read_text().splitlines()]
    for key, described in (entry for line in lines for entry in line.items() if entry[1]):
        if not key.startswith("channels/"):
            described["last_modified"] = written
    index.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def tries_that_airflow_took(chain, run):
    """Count, by task, the tries that Airflow took by mistake.

    Its scheduler fails a resumed task if it learns only then that the task's first process has ended, which it did to be
    deferred (https://github.com/apache/airflow/issues/72716; 3.3.2). On a busy machine it learns that late.
    """
    query = {"dag_id": run.dag_id, "run_id": run.run_id, "event": "state mismatch"}
    with contextlib.closing(Session(chain.airflow.address, chain.login)) as session:
        answer = session.send("GET", "/api/v2/eventLogs", params=query)
    entries = answer.json()["event_logs"]  # of a process that was killed: finished with state failed
    return Counter(entry["task_id"] for entry in entries if "finished with state success" in entry["extra"])


def test_a_new_database_of_airflow_loses_no_release_and_the_next_one_takes_over(chain, recovered):
    before = recovered.before.channel

    assert (recovered.without, recovered.without.answers) == (recovered.before, True)
    assert recovered.history == "empty"
    assert recovered.holder == f"{DAG}/{LOST_RUN}"
    assert list(recovered.given) == ["release"]
    assert recovered.release.run.state == "success", chain.said(recovered.release)
    assert chain.lease_holder() is None
    channel = recovered.channel
    assert channel["live"]["release_id"] != before["live"]["release_id"] == channel["previous"][0]["release_id"]
    assert channel["history"][1:] == before["history"]
    assert channel["history"][0]["run"] == recovered.release.results["plan"].run


def test_a_release_whose_tasks_are_deferred_survives_a_kill_of_the_triggerer(chain, recovered):
    view = recovered.release

    assert view.run.state == "success", chain.said(view)
    assert chain.stack.status()["triggerer"].pid not in (0, recovered.killed)
    assert max(Counter(recovered.steps).values()) == 1, recovered.steps
    repeated = {name: task.try_number - 1 for name, task in view.tasks.items() if task.try_number > 1}
    assert repeated == tries_that_airflow_took(chain, view.run)


def test_retention_deletes_what_nothing_names_and_a_release_beside_it_goes_live(chain, recovered):
    kept, channel = recovered.retention, recovered.channel

    assert kept.run.state == "success", kept.results
    assert chain.keys(f"{chain.layout.artifact('publish', UNUSED)}/") == set()
    parts = kept.results["retention"].data["report"]["parts"]
    reported = [json.loads(line) for part in parts for line in chain.bytes(part).splitlines()]
    assert any(UNUSED in json.dumps(line) for line in reported)
    for entry in (channel["live"], *channel["previous"]):
        plan = chain.read(entry["release_uri"])["plan"]
        assert chain.manifest("publish", plan["stages"]["publish"]["key"]), entry["release_id"]
    assert chain.ask()


def test_what_was_live_before_the_loss_comes_back_by_the_command(chain, recovered):
    slipway(chain, "rollback", MODEL, "--reason", "wrong answers")

    assert chain.live() == recovered.before.channel["live"]["release_id"]
    assert chain.ask()
