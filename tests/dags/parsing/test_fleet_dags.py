"""The DAGs of a fleet: one for each member as if it had a spec of its own, and one that releases them all."""

import json
from types import SimpleNamespace

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.common.compat.sdk import DagRunTriggerException
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID

from slipway.airflow.specs import Slice, read_specs
from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY

FLEET = {**SPEC, "serving": {"shape": ["cpu-1", "cpu-2", "cpu-4"]}, "schedule": "@daily"}
MEMBERS = ["demo-cpu-1", "demo-cpu-2", "demo-cpu-4"]
OF_MEMBERS = {f"{kind}__{name}" for kind in ("release", "rollback") for name in MEMBERS}


@pytest.fixture
def specs(tmp_path, monkeypatch):
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(FLEET))
    monkeypatch.setenv("SLIPWAY_SPECS", str(tmp_path))
    return tmp_path


def dags(file="releases.py"):
    found = DagBag(str(REPOSITORY / "dags" / file))
    assert found.import_errors == {}
    return found.dags


def test_each_member_has_the_dags_of_a_model_and_the_fleet_has_one(specs):
    found = dags()

    assert found.keys() == OF_MEMBERS | {"fleet__demo", "retention", "remove_failed_pods"}
    assert [found[f"release__{name}"].schedule for name in MEMBERS] == [None] * 3
    assert found["fleet__demo"].schedule == "@daily"
    # by the spec that its steps get, the exporter knows when a member's release is due
    assert {found[f"release__{name}"].get_task("plan").spec.schedule for name in MEMBERS} == {"@daily"}


def test_the_members_after_the_first_are_released_side_by_side_whatever_became_of_it(specs):
    dag = dags()["fleet__demo"]

    first, *others = MEMBERS
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {
        first: {*others, "released"},
        **{other: {"released"} for other in others},
        "released": set(),
    }
    rules = {task.task_id: task.trigger_rule.value for task in dag.tasks}
    assert rules == {first: "all_success", **dict.fromkeys(others, "all_done"), "released": "all_success"}


def test_a_members_run_has_the_parameters_of_the_fleets_and_its_id(specs):
    task = dags()["fleet__demo"].get_task("demo-cpu-2")
    run = {"run_id": "cli-ada", "dag_run": type("Run", (), {"conf": {"revision": "v'2", "force": True}})}

    task.render_template_fields({**run, "params": {}})

    assert (task.trigger_dag_id, task.trigger_run_id) == ("release__demo-cpu-2", "fleet__cli-ada")
    assert json.loads(task.conf) == {"revision": "v'2", "force": True}
    assert (task.wait_for_completion, task.deferrable) == (True, True)


def test_the_wait_is_for_a_run_without_a_date(specs):
    dag = dags()["fleet__demo"]

    # with a date, Airflow 3.1.0 to 3.1.3 never find a run that was cleared: apache/airflow#57756
    assert {dag.get_task(name).logical_date for name in MEMBERS} == {None}


@pytest.mark.parametrize("ti", [{"get_dag": lambda _: SimpleNamespace(is_paused=False)}, {}], ids=["3.2", "3.1"])
def test_a_member_whose_dag_is_not_known_to_be_paused_is_started(specs, ti):
    task = dags()["fleet__demo"].get_task("demo-cpu-2")
    task.conf = {}

    with pytest.raises(DagRunTriggerException):
        task.execute({"ti": SimpleNamespace(**ti)})


def test_a_person_may_set_for_the_fleet_what_suits_every_member(specs):
    (specs / "own.yaml").write_text(
        yaml.safe_dump({**FLEET, "name": "own", "fleet": {"cpu-2": {"rollout": {"approval": "human"}}}})
    )

    found = dags()

    assert set(found["fleet__demo"].params) == {"revision", "plan_only", "force", "approval"}
    assert set(found["fleet__own"].params) == {"revision", "plan_only", "force"}


@pytest.mark.parametrize("dag_id", ["fleet__demo", "release__demo-cpu-4", "rollback__demo-cpu-4"])
def test_the_process_of_a_task_makes_its_dag_alone(specs, monkeypatch, dag_id):
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, dag_id)

    assert dags().keys() == {dag_id}


def test_a_task_of_a_member_parses_only_files_that_may_describe_it(specs):
    (specs / "other.yaml").write_text("name: other\nnonsense: true\n")

    assert read_specs(specs, only="demo-cpu-4").broken == {}


@pytest.mark.parametrize("name", ["demo", *MEMBERS])
def test_a_name_of_the_fleet_or_of_a_member_is_taken(specs, name):
    (specs / "later.yaml").write_text(yaml.safe_dump({**SPEC, "name": name}))

    (reason,) = read_specs(specs).broken.values()

    assert f"name {name} is taken by {specs / 'demo.yaml'}" in reason


def test_a_broken_member_is_reported_and_the_other_specs_keep_their_dags(specs, monkeypatch):
    (specs / "good.yaml").write_text(yaml.safe_dump({**SPEC, "name": "good"}))
    (specs / "demo.yaml").write_text(yaml.safe_dump({**FLEET, "fleet": {"cpu-2": {"engine": {"kind": "gpt"}}}}))

    assert {"release__good"} == {dag_id for dag_id in dags() if dag_id.startswith("release__")}
    (error,) = DagBag(str(REPOSITORY / "dags" / "broken_specs.py")).import_errors.values()
    assert "demo.yaml" in error
    assert "the fleet's cpu-2" in error


def test_a_fleet_is_in_one_slice(specs):
    found = [read_specs(specs, part=Slice(number, 3)).good for number in (1, 2, 3)]

    assert sorted(len(each) for each in found) == [0, 0, 1]
