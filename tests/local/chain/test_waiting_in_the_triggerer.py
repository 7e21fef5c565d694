"""Tasks that wait for their pods in the triggerer, as with `airflow.deferrable` of the site, on the laptop's whole stack."""

import os
import signal
from collections import Counter

import pytest
import yaml

from slipway.airflow.runs import run_identity
from tests.local.chain.whole_chain import MODEL
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(1000)

# this file comes after test_releases.py, which expects no releases beside its own, and has made what this one serves
DAG = f"release__{MODEL}"


@pytest.fixture
def deferrable(chain):
    """The site file, which each task's process reads, defers tasks."""
    if chain.stack is None:
        pytest.skip("needs an Airflow whose site file a test may change")
    file = chain.stack.site_file
    before = file.read_text()
    file.write_text(yaml.safe_dump(yaml.safe_load(before) | {"airflow": {"deferrable": True}}))
    yield
    file.write_text(before)


def test_a_release_whose_tasks_are_deferred_survives_a_kill_of_the_triggerer(chain, promoted, deferrable):
    stack, run_id = chain.stack, "deferred"

    def tasks():
        return {task.task_id: task for task in chain.airflow.tasks(run)}

    with chain.counting_pods(run=run_identity(run_id)) as pods:
        run = chain.trigger(DAG, run_id, revision=chain.other_revision())
        until(lambda: "deferred" in {task.state for task in tasks().values()}, timeout_s=600, every_s=0.2)
        pid = stack.status()["triggerer"].pid
        os.kill(pid, signal.SIGKILL)
        view = chain.follow(run)

    assert view.run.state == "success"
    assert stack.status()["triggerer"].pid not in (0, pid)
    assert max(Counter(pods.steps.values()).values()) == 1
    assert max(task.try_number for task in tasks().values()) == 1
