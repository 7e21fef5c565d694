"""A run that a person marks as failed midway: its model is free, and live is untouched. A request while the database is busy."""

import contextlib
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from slipway.airflow.runs import run_identity
from tests.local.chain.whole_chain import MODEL
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(3600)

DAG = f"release__{MODEL}"
PREFIX = "midway-"
TIMEOUT_S = 90


class ByRest:
    """What a person does in Airflow's UI, by the same API."""

    def __init__(self, chain):
        address, environment = chain.airflow.address, chain.environment
        token = environment.get("SLIPWAY_AIRFLOW_TOKEN") or self._new_token(address, environment)
        self._client = httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S)

    def mark(self, run, state):
        self._change(f"/api/v2/dags/{DAG}/dagRuns/{run.run_id}", {"state": state})

    def unpause(self):
        self._change(f"/api/v2/dags/{DAG}", {"is_paused": False})

    def close(self):
        self._client.close()

    def _change(self, path, change):
        """Once more after a 5xx, as a person would; Airflow on SQLite gives one when its database is busy."""
        answer = self._client.patch(path, json=change)
        if answer.is_server_error:
            print(f"Airflow answered {answer.status_code}: {answer.text[:2000]}")
            time.sleep(1)
            answer = self._client.patch(path, json=change)
        assert answer.is_success, f"{answer.status_code}: {answer.text[:2000]}"

    def _new_token(self, address, environment):
        login = {"username": environment["SLIPWAY_AIRFLOW_USER"], "password": environment["SLIPWAY_AIRFLOW_PASSWORD"]}
        answer = httpx.post(f"{address}/auth/token", json=login, timeout=TIMEOUT_S)
        return answer.raise_for_status().json()["access_token"]


@pytest.fixture
def person(chain):
    with contextlib.closing(ByRest(chain)) as person:
        yield person
        # a run that a failed test leaves would hold up the next one
        for run in chain.airflow.runs(DAG, 9):
            if not run.ended and run.run_id.startswith(PREFIX):
                person.mark(run, "failed")
                chain.follow(run)


@pytest.fixture
def airflow(chain):
    """Airflow, of which the test may lock the database."""
    if chain.stack is None:
        pytest.skip("needs an Airflow whose database is a file of this machine")
    return chain.stack.airflow


def serving(chain):
    """What serves the model: the live release, its Service, and the Deployments, that of a warm release among them."""
    return chain.live(), chain.live_service(), chain.deployments()


def test_a_run_that_a_person_marks_as_failed_leaves_nothing_and_the_model_is_free(chain, promoted, person):
    before, run_id = serving(chain), f"{PREFIX}{time.time_ns()}"

    with chain.counting_pods(run=run_identity(run_id)) as pods:
        run = chain.trigger(DAG, run_id, revision="v2")
        chain.reach(run, "roll-out", {"running", "deferred", "success"})
        until(chain.lease_holder)
        chain.reach_candidate()
        person.mark(run, "failed")
        view = chain.follow(run)

    assert (view.run.state, view.tasks["roll-back"].state) == ("failed", "success")
    assert (chain.lease_holder(), chain.candidate()) == (None, None)
    assert serving(chain) == before
    planned = view.results["plan"].data["stages"]
    made = {stage for stage in planned if not planned[stage]["stored"]}
    began = set(pods.steps.values())
    assert began >= {"plan", *made, "roll-out", "roll-back"}
    assert "promote" not in began


def test_a_request_waits_while_another_process_writes_to_airflows_database(chain, promoted, person, airflow):
    with contextlib.closing(sqlite3.connect(airflow.folder / "airflow.db", timeout=60)) as database, database:
        database.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as threads:
            request = threads.submit(person.unpause)
            time.sleep(8)
            assert not request.done()
            database.commit()

            request.result()
