"""A stage is made in the image that is part of its key, although the site file may change while a run goes on."""

from datetime import UTC, datetime

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tests.fakes.kube.kubernetes_pods import PodEnd, status

IMAGE = "slipway/tasks-cpu:test"  # of tests/dags/site.yaml


def planned_with(runs, image):
    plan = runs.release.plan
    build = plan.stages["build"].model_copy(update={"fields": {"producer": {"image": image}}})
    plan = plan.model_copy(update={"stages": {**plan.stages, "build": build}})
    runs.release = runs.release.model_copy(update={"plan": plan})
    runs.planned()


def test_a_stage_is_not_made_in_another_image_than_planned(runs):
    planned_with(runs, "slipway/tasks-cpu:before")

    with pytest.raises(AirflowFailException) as caught:
        runs.execute("build")

    assert f"found {IMAGE}, expected slipway/tasks-cpu:before" in str(caught.value)
    assert "Plan again: slipway release demo" in str(caught.value)
    assert runs.cluster.created == []


def test_a_stage_is_made_in_the_image_that_was_planned(runs):
    planned_with(runs, IMAGE)
    runs.ends(runs.result("build"))

    assert runs.execute("build")["outcome"] == "done"


def test_a_pod_that_began_before_the_site_file_changed_is_adopted(runs):
    planned_with(runs, IMAGE)
    runs.ends(runs.result("build"))
    runs.execute("build")
    (pod,) = runs.cluster.created
    pod["status"] = status(PodEnd(), datetime.now(UTC))
    runs.cluster.pods[pod["metadata"]["name"]] = pod
    runs.write(runs.result("build"))
    planned_with(runs, "slipway/tasks-cpu:before")

    assert runs.execute("build")["outcome"] == "done"
    assert runs.cluster.created == [pod]


def test_a_try_after_a_failed_one_does_not_use_another_image_either(runs):
    planned_with(runs, IMAGE)
    runs.ends(runs.result("build"))
    runs.execute("build")
    (pod,) = runs.cluster.created
    pod["status"] = status(PodEnd(exit_code=75), datetime.now(UTC))
    runs.cluster.pods[pod["metadata"]["name"]] = pod
    planned_with(runs, "slipway/tasks-cpu:before")

    with pytest.raises(AirflowFailException, match="its image changed"):
        runs.execute("build")

    assert runs.cluster.created == [pod]
