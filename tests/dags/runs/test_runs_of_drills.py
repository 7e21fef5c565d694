"""Runs of `drill__<name>` by Airflow itself, with a scripted pod: which of them are red."""

import contextlib
from datetime import UTC, datetime

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag

from tests.fakes.kube.kubernetes_pods import PodEnd
from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY


@pytest.mark.parametrize(
    ("verdict", "run_state", "task_state"),
    [("passed", "success", "success"), ("skipped", "success", "skipped"), ("failed", "failed", "failed")],
)
def test_a_run_is_red_only_if_the_drill_found_something(
    runs, database, tmp_path, monkeypatch, verdict, run_state, task_state
):
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump({**SPEC, "rollout": {"drill": {}}}))
    monkeypatch.setenv("SLIPWAY_SPECS", str(tmp_path))
    dag = DagBag(str(REPOSITORY / "dags")).dags["drill__demo"]

    def script(pod):
        result = runs.result("drill", run=pod["metadata"]["labels"]["slipway.dev/run"], data={"verdict": verdict})
        runs.write(result.model_copy(update={"started_at": datetime.now(UTC)}))
        return PodEnd()

    runs.cluster.script = script
    with contextlib.suppress(SystemExit):
        finished = dag.test()

    assert (finished.state, [str(ti.state) for ti in finished.get_task_instances()]) == (run_state, [task_state])
    (pod,) = runs.cluster.created
    assert pod["spec"]["serviceAccountName"] == "slipway-deployer"
    assert pod["metadata"]["annotations"]["slipway.dev/dag-run"].startswith("drill__demo/")
