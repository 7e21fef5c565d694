"""A run that is marked as failed, deleted, or loses its Airflow midway: its model is free, and live is untouched."""

import contextlib
import os
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from local.stack import Stack
from slipway.airflow.runs import run_identity
from tests.local.chain.own_stack import FOLDER
from tests.local.chain.whole_chain import MODEL
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(3600)

DAG = f"release__{MODEL}"
PREFIX = "midway-"
WAITING = {"running", "deferred"}
TIMEOUT_S = 90
SILENCE_S = 35
"""More than Airflow's `scheduler_health_check_threshold`."""


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
    """The processes of Airflow, which the test may kill."""
    if chain.stack is None:
        pytest.skip("needs an Airflow whose processes a test may kill")
    return chain.stack.airflow


def lease_of(chain):
    return chain.cluster.lease_holder(f"slipway-{MODEL}")


def serving(chain):
    """What serves the model: the live release, its Service, and the Deployments, that of a warm release among them."""
    return chain.live(), chain.live_service(), chain.deployments()


def assert_free(chain, before):
    """Nothing of the ended run is left, and what serves the model is what it was."""
    assert lease_of(chain) is None
    assert chain.candidate() is None
    assert serving(chain) == before


def begun(chain, task_id, run_id, **conf):
    """A run whose task is under way; Airflow has taken the model's lease for it."""
    run = chain.trigger(DAG, run_id, revision="v2", **conf)
    chain.reach(run, task_id, WAITING)
    until(lambda: lease_of(chain))
    chain.reach_candidate()
    return run


def marked_as_failed(chain, person, run):
    """The run as it ended after a person marked it."""
    person.mark(run, "failed")
    view = chain.follow(run)
    assert view.run.state == "failed"
    assert view.tasks["roll-back"].state == "success"
    return view


def test_a_run_that_a_person_marks_as_failed_leaves_nothing_and_the_model_is_free(chain, promoted, person):
    before, run_id = serving(chain), f"{PREFIX}{time.time_ns()}"

    with chain.counting_pods(run=run_identity(run_id)) as pods:
        run = begun(chain, "roll-out", run_id)
        view = marked_as_failed(chain, person, run)

    assert_free(chain, before)
    planned = view.results["plan"].data["stages"]
    made = {stage for stage in planned if not planned[stage]["stored"]}
    assert set(pods.steps.values()) == {"plan", *made, "roll-out", "roll-back"}


def test_a_run_goes_on_when_all_of_airflow_was_killed_and_came_back(chain, promoted, person, airflow):
    before = serving(chain)
    run = begun(chain, "benchmark", f"{PREFIX}{time.time_ns()}", approval="human")

    with away(chain, airflow):
        holder = lease_of(chain)

    assert holder.dag_run == f"{DAG}/{run.run_id}"
    chain.reach(run, "approval", {"awaiting_input"})
    marked_as_failed(chain, person, run)
    assert_free(chain, before)


def test_a_request_waits_while_another_process_writes_to_airflows_database(chain, promoted, person, airflow):
    with contextlib.closing(sqlite3.connect(airflow.folder / "airflow.db", timeout=60)) as database, database:
        database.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as threads:
            request = threads.submit(person.unpause)
            time.sleep(8)
            assert not request.done()
            database.commit()

            request.result()


@contextlib.contextmanager
def away(chain, airflow):
    """Airflow while every process of its own was killed; afterwards its supervisor starts all of them at the same ports."""
    ports = Stack(FOLDER).settings.ports
    supervisor = int((FOLDER / "supervisor" / "supervisord.pid").read_text())
    os.kill(supervisor, signal.SIGSTOP)
    try:
        kill_all(airflow)
        yield
        # a new scheduler takes over at once what one left that has been silent for this long; else in five minutes
        time.sleep(SILENCE_S)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    chain.up()
    until(lambda: airflow.unhealthy_parts() == [])
    assert Stack(FOLDER).settings.ports == ports


def kill_all(airflow):
    """SIGKILL of every process of Airflow's, the tasks' own among them, until none is left."""
    home = f"AIRFLOW_HOME={airflow.folder}\0".encode()

    def killed():
        left = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if home in (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                    os.kill(int(folder.name), signal.SIGKILL)
                    left += 1
        return left == 0

    until(killed)
