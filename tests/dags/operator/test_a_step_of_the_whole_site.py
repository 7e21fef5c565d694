"""`retention` belongs to no release: its pod, its request and its result are the site's."""

import json

import pytest
import yaml
from airflow.sdk.bases.operator import ExecutorSafeguard
from kubernetes.client import ApiClient

from slipway.airflow.pods import step_pod
from slipway.airflow.site import read_site
from slipway.airflow.step_operator import StepOperator
from slipway.tasks.contracts.stored.release import StepResult
from tests.dags.places import SITE
from tests.dags.step_runs import LAYOUT, RUN
from tests.fakes.kube.kubernetes_pods import PodEnd
from tests.support.goldens import GOLDEN, check_golden


def result(**changes):
    values = {"step": "retention", "run": RUN, "outcome": "done", "summary": "deleted nothing", "seconds": 1.0}
    return StepResult.model_validate({**values, "started_at": "2026-01-01T00:00:00Z", **changes})


def execute(runs, *, dry_run, outcome=None):
    def script(_):
        if outcome is not None:
            key = LAYOUT.retention_result(RUN).removeprefix("s3://slipway/")
            runs.bucket.put_object(Key=key, Body=outcome.model_dump_json().encode())
        return PodEnd()

    runs.cluster.script = script
    operator = StepOperator(task_id="retention", step="retention")
    ExecutorSafeguard.tracker.set(operator)
    operator.execute(runs.context(operator, dry_run=dry_run))
    return runs.xcoms.get(("retention", "return_value"))


def test_its_pod_is_as_reviewed():
    pod = ApiClient().sanitize_for_serialization(step_pod("retention", None, read_site(SITE)))

    check_golden(GOLDEN / "pods" / "site-retention.yaml", yaml.safe_dump(pod, sort_keys=False))


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_was_requested_travels_as_a_document_and_the_result_becomes_the_xcom(runs, dry_run):
    value = execute(runs, dry_run=dry_run, outcome=result(started_at="2126-01-01T00:00:00Z"))

    (pod,) = runs.cluster.created
    uri = LAYOUT.request("slipway", RUN, "retention")
    assert pod["spec"]["containers"][0]["command"] == ["python", "-m", "slipway.tasks", "retention", "--request", uri]
    request = json.loads(runs.bucket.Object(uri.removeprefix("s3://slipway/")).get()["Body"].read())
    assert request == {"run": RUN, "dry_run": dry_run}
    assert value["summary"] == "deleted nothing"


def test_its_pod_is_named_and_labelled_as_no_model(runs):
    execute(runs, dry_run=True, outcome=result(started_at="2126-01-01T00:00:00Z"))

    (pod,) = runs.cluster.created
    assert pod["metadata"]["name"].startswith("slipway-retention-")
    assert pod["metadata"]["labels"]["slipway.dev/step"] == "retention"
    assert "slipway.dev/model" not in pod["metadata"]["labels"]
    assert pod["spec"]["serviceAccountName"] == "slipway-retention"
