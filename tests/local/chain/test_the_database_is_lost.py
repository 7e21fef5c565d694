"""What a release met that was asked for after the loss of Airflow's database (take_over.py)."""

import json
from collections import Counter
from contextlib import closing

import pytest

from slipway.airflow.runs import run_identity
from slipway.cli.airflow.session import Session
from tests.local.chain.lost_database import DAG, LOST_RUN
from tests.local.chain.take_over import MEASURED, UNUSED

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture
def drill(taken_over):
    if taken_over.drill is None:
        pytest.skip("needs a stack that a test may destroy")
    return taken_over.drill


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


def test_a_new_database_of_airflow_loses_no_release_and_the_next_one_takes_over(chain, taken_over, drill):
    before, channel = drill.before.channel, taken_over.channel

    assert (drill.without, drill.without.answers) == (drill.before, True)
    assert drill.history == "empty"
    assert drill.lost_holder == f"{DAG}/{LOST_RUN}"
    assert list(drill.said) == ["release"]
    assert taken_over.view.run.state == "success", chain.said(taken_over.view)
    assert chain.lease_holder() is None
    assert channel["live"]["release_id"] != before["live"]["release_id"] == channel["previous"][0]["release_id"]
    assert channel["history"][1:] == before["history"]
    assert channel["history"][0]["run"] == taken_over.view.results["plan"].run


def deferred_tasks(chain, run):
    """The tasks of a run whose pods the triggerer waited for: it wrote a log for each."""
    folder = chain.stack.airflow.folder / "logs" / f"dag_id={run.dag_id}" / f"run_id={run.run_id}"
    return {log.parent.name.removeprefix("task_id=") for log in folder.glob("*/*.trigger.*.log")}


def test_a_release_whose_tasks_are_deferred_survives_a_kill_of_the_triggerer(chain, taken_over, drill):
    """Those that measure the candidate are not deferred: they met the kill of all of Airflow."""
    view = taken_over.view
    pods = Counter(taken_over.pods.steps_of(run_identity(view.run.run_id)))
    deferred = deferred_tasks(chain, view.run)

    assert view.run.state == "success", chain.said(view)
    assert deferred >= {"plan", "roll-out", "promote"}
    assert deferred.isdisjoint(MEASURED)
    assert (taken_over.pods.problem, pods["plan"], pods["promote"]) == (None, 1, 1)
    assert {name for name, count in pods.items() if count > 1} <= MEASURED
    repeated = {name: task.try_number - 1 for name, task in view.tasks.items() if task.try_number > 1}
    assert {name: tries for name, tries in repeated.items() if name not in MEASURED} == {
        name: tries for name, tries in tries_that_airflow_took(chain, view.run).items() if name not in MEASURED
    }


def test_retention_deletes_what_nothing_names_and_a_release_beside_it_goes_live(chain, taken_over, drill):
    kept, channel = drill.retention, taken_over.channel

    assert kept.run.state == "success", chain.said(kept)
    assert chain.keys(f"{chain.layout.artifact('publish', UNUSED)}/") == set()
    parts = kept.results["retention"].data["report"]["parts"]
    reported = [json.loads(line) for part in parts for line in chain.bytes(part).splitlines()]
    assert any(UNUSED in json.dumps(line) for line in reported)
    for entry in (channel["live"], *channel["previous"]):
        plan = chain.read(entry["release_uri"])["plan"]
        assert chain.manifest("publish", plan["stages"]["publish"]["key"]), entry["release_id"]
    assert chain.ask()
