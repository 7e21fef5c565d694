import shutil

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.utils.file import find_path_from_directory

from tests.dags.conftest import REPOSITORY
from tests.fakes.releases import SPEC

EDGES = {
    "plan": {"download"},
    "download": {"quantize"},
    "quantize": {"build"},
    "build": {"assemble"},
    "assemble": {"publish"},
    "publish": {"roll-out"},
    "roll-out": {"smoke-test", "roll-back"},
    "smoke-test": {"benchmark", "roll-back"},
    "benchmark": {"gate", "roll-back"},
    "gate": {"approval", "promote", "roll-back"},
    "approval": {"promote", "roll-back"},
    "promote": {"released", "roll-back"},
    "roll-back": set(),
    "released": set(),
}


def bag(folder, monkeypatch):
    monkeypatch.setenv("SLIPWAY_SPECS", str(folder))
    return DagBag(str(REPOSITORY / "dags"))


@pytest.fixture
def specs(tmp_path):
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(SPEC))
    return tmp_path


def test_every_spec_of_the_repository_is_a_dag(monkeypatch):
    found = bag(REPOSITORY / "specs", monkeypatch)

    assert found.import_errors == {}
    specs = list((REPOSITORY / "specs").glob("*.yaml"))
    assert len(found.dags) == 2 * len(specs)  # release__ and rollback__


def test_the_steps_follow_each_other_and_only_a_failure_reaches_roll_back(specs, monkeypatch):
    dag = bag(specs, monkeypatch).dags["release__demo"]

    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == EDGES
    assert dag.get_task("roll-back").trigger_rule == "one_failed"
    assert dag.max_active_runs == 1


def test_a_run_may_choose_revision_force_and_approval_within_the_specs_own_schema(specs, monkeypatch):
    params = bag(specs, monkeypatch).dags["release__demo"].params

    assert dict(params) == {"revision": "v1", "plan_only": False, "force": False, "approval": "none"}
    assert params.get_param("approval").schema["enum"] == ["none", "human"]
    assert params.get_param("revision").schema["minLength"] == 1


def test_a_broken_spec_is_an_import_error_that_names_the_file_while_the_others_load(specs, monkeypatch):
    (specs / "bad.yaml").write_text(yaml.safe_dump({**SPEC, "name": "Bad Name"}))
    (specs / "worse.yaml").write_text("a: [")
    shutil.copy(specs / "demo.yaml", specs / "twice.yaml")

    found = bag(specs, monkeypatch)

    assert set(found.dags) == {"release__demo", "rollback__demo"}
    ((file, text),) = found.import_errors.items()
    assert file.endswith("broken_specs.py")
    for expected in ("bad.yaml: name:", "worse.yaml is no YAML", "twice.yaml: name demo is taken by"):
        assert expected in text


def test_airflow_executes_the_plugin_file_and_no_other():
    found = [str(path) for path in find_path_from_directory(str(REPOSITORY / "plugins"), ".airflowignore")]

    assert [path.rpartition("/")[2] for path in found if path.endswith(".py")] == ["slipway_plugin.py"]
