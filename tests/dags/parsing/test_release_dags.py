import json
import os
import random
import shutil
from types import SimpleNamespace

import pytest
import yaml
from airflow._shared.module_loading import find_path_from_directory
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG
from airflow.timetables.base import TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.timetables.trigger import CronTriggerTimetable
from airflow.utils.dates import cron_presets
from markdown_it import MarkdownIt
from pendulum import datetime

from slipway.airflow.dags.release_dag import release_dag
from slipway.airflow.site import current_site
from slipway.airflow.specs import make_dags
from slipway.tasks.contracts.schedule import PRESETS, check_schedule
from tests.fakes.mutated_documents import mutants
from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY
from tests.support.seeds import dice
from tests.support.strange_texts import INLINE, PROSE, questions_of_specs
from tests.support.yaml_documents import load_yaml

EDGES = {
    "plan": {"download"},
    "download": {"quantize"},
    "quantize": {"build"},
    "build": {"assemble"},
    "assemble": {"publish"},
    "publish": {"check-network"},
    "check-network": {"roll-out"},
    "roll-out": {"smoke-test", "roll-back"},
    "smoke-test": {"benchmark", "roll-back"},
    "benchmark": {"gate", "roll-back"},
    "gate": {"approval", "promote", "roll-back"},
    "approval": {"promote", "roll-back"},
    "promote": {"released", "roll-back"},
    "roll-back": {"released"},
    "released": set(),
}


def bag(folder, monkeypatch):
    monkeypatch.setenv("SLIPWAY_SPECS", str(folder))
    return DagBag(str(REPOSITORY / "dags"))


@pytest.fixture
def specs(tmp_path):
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(SPEC))
    return tmp_path


def test_a_model_in_a_folder_is_named_by_its_uri_without_a_revision(tmp_path, monkeypatch):
    uri = "s3://models/acme/demo"
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump({**SPEC, "source": {"uri": uri}}))

    dag = bag(tmp_path, monkeypatch).dags["release__demo"]

    assert dag.description.startswith(f"{uri} → ")
    assert f"`{uri}`, quantized" in dag.doc_md
    assert "None" not in dag.doc_md


def test_the_texts_of_a_spec_stay_in_the_code_block_of_its_doc(tmp_path, monkeypatch):
    questions = questions_of_specs("alert(1)", "http://stranger.example/x")
    spec = {**SPEC, "gate": {**SPEC["gate"], "smoke": questions}}
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(spec))
    tokens = MarkdownIt().parse(bag(tmp_path, monkeypatch).dags["release__demo"].doc_md)

    assert [each.type for each in tokens if each.type not in PROSE] == ["fence"]
    assert not [child for each in tokens for child in each.children or [] if child.type not in INLINE]


def test_every_spec_of_the_repository_is_a_dag(monkeypatch):
    found = bag(REPOSITORY / "specs", monkeypatch)

    assert found.import_errors == {}
    specs = list((REPOSITORY / "specs").glob("*.yaml"))
    assert len(found.dags) == 2 * len(specs) + 2  # release__ and rollback__ of each, remove_failed_pods and retention


def test_the_steps_follow_each_other_and_what_cleans_up_survives_a_run_that_is_marked_as_failed(specs, monkeypatch):
    dag = bag(specs, monkeypatch).dags["release__demo"]

    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == EDGES
    assert [task.task_id for task in dag.teardowns] == ["roll-back", "released"]
    assert [task.task_id for task in dag.teardowns if task.on_failure_fail_dagrun] == ["released"]
    assert dag.max_active_runs == 1


def test_a_spec_with_a_harness_is_evaluated_before_the_gate(specs, monkeypatch):
    harness = {"tasks": [{"task": "gsm8k", "at_least": 0.5}]}
    (specs / "demo.yaml").write_text(yaml.safe_dump({**SPEC, "gate": {**SPEC["gate"], "harness": harness}}))

    dag = bag(specs, monkeypatch).dags["release__demo"]

    edges = {**EDGES, "benchmark": {"evaluate", "roll-back"}, "evaluate": {"gate", "roll-back"}}
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == edges


def test_every_task_but_the_verdict_is_tried_again_after_a_failure_that_may_pass(specs, monkeypatch):
    dag = bag(specs, monkeypatch).dags["release__demo"]

    assert {task.task_id: task.retries for task in dag.tasks} == {**dict.fromkeys(EDGES, 2), "released": 0}


def test_under_load_a_rollback_goes_first_and_then_what_is_nearest_to_its_end(specs, monkeypatch):
    stored = [LazyDeserializedDAG.from_dag(dag) for dag in bag(specs, monkeypatch).dags.values()]
    dags = {each.dag_id: DagSerialization.from_dict(each.data) for each in stored}
    weight = {
        (dag_id, task.task_id): task.weight_rule.get_weight(SimpleNamespace(task=task))
        for dag_id, dag in dags.items()
        for task in dag.tasks
    }
    order = ["plan", "download", "quantize", "build", "assemble", "publish", "check-network", "roll-out", "smoke-test"]
    order += ["benchmark", "gate", "approval", "promote", "roll-back", "released"]

    release = [weight["release__demo", task] for task in order]
    assert release == sorted(set(release))
    assert weight["rollback__demo", "revert"] > max(release)


def drills(folder, monkeypatch, **drill):
    """The DAGs of a spec with `rollout.drill`."""
    (folder / "demo.yaml").write_text(yaml.safe_dump({**SPEC, "rollout": {"drill": drill}}))
    return bag(folder, monkeypatch)


def test_a_spec_with_a_drill_has_a_dag_for_it_that_never_runs_twice_at_once(specs, monkeypatch):
    found = drills(specs, monkeypatch, schedule="30 5 * * 2")

    dag = found.dags["drill__demo"]
    assert (found.import_errors, set(found.dags) - {"drill__demo"}) == ({}, set(bag_without_drill(specs, monkeypatch)))
    assert [(task.task_id, task.retries) for task in dag.tasks] == [("drill", 1)]
    assert (dag.schedule, dag.max_active_runs, dag.catchup) == ("30 5 * * 2", 1, False)


def bag_without_drill(folder, monkeypatch):
    (folder / "demo.yaml").write_text(yaml.safe_dump(SPEC))
    return bag(folder, monkeypatch).dags


def test_a_drill_that_makes_no_sense_is_reported_once_and_by_its_file(specs, monkeypatch):
    found = drills(specs, monkeypatch, schedule="@continuous")

    ((file, text),) = found.import_errors.items()
    assert file.endswith("broken_specs.py")
    assert text.count(": rollout.drill: schedule @continuous") == 1
    assert set(found.dags) == {"remove_failed_pods", "retention"}


def test_a_drill_has_no_higher_priority_than_a_release(specs, monkeypatch):
    dags = drills(specs, monkeypatch).dags

    weight = {
        task.task_id: task.priority_weight for name in ("drill__demo", "release__demo") for task in dags[name].tasks
    }
    assert weight["drill"] <= min(weight.values())


def test_a_run_may_choose_revision_force_and_approval_within_the_specs_own_schema(specs, monkeypatch):
    params = bag(specs, monkeypatch).dags["release__demo"].params

    assert dict(params) == {"revision": "v1", "plan_only": False, "force": False, "approval": "none"}
    assert params.get_param("approval").schema["enum"] == ["none", "human"]
    assert params.get_param("revision").schema["minLength"] == 1


def test_a_run_cannot_go_without_the_approval_that_its_spec_wants(specs, monkeypatch):
    (specs / "demo.yaml").write_text(yaml.safe_dump({**SPEC, "rollout": {"approval": "human"}}))

    params = bag(specs, monkeypatch).dags["release__demo"].params

    with pytest.raises(ParamValidationError, match="'none' is not one of"):
        params.update({"approval": "none"})


def test_a_broken_spec_is_an_import_error_that_names_the_file_while_the_others_load(specs, monkeypatch):
    (specs / "bad.yaml").write_text(yaml.safe_dump({**SPEC, "name": "Bad Name"}))
    (specs / "worse.yaml").write_text("a: [")
    shutil.copy(specs / "demo.yaml", specs / "twice.yaml")

    found = bag(specs, monkeypatch)

    assert set(found.dags) == {"release__demo", "rollback__demo", "remove_failed_pods", "retention"}
    ((file, text),) = found.import_errors.items()
    assert file.endswith("broken_specs.py")
    for expected in ("bad.yaml:15:1: name:", "worse.yaml:2:1: not valid YAML", "twice.yaml: name demo is taken by"):
        assert expected in text


HOSTILE_FILES = {
    "latin": "# café\n".encode("latin-1"),
    "date": b"revision: 2026-02-30\n",
    "digits": b"a: " + b"9" * 5000,
    "deep": b"[" * 100_000,
    "laughs": b"a: &a [x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\n",
    "twice": yaml.safe_dump(SPEC).encode() + b"gate: {}\n",
    **{
        name: yaml.safe_dump({**SPEC, "name": name, **changes}).encode()
        for name, changes in {
            "bakes": {"rollout": {"bake_s": 10**15}},
            "requests": {"gate": {**SPEC["gate"], "benchmark": {"requests": 10**18}}},
            "waits": {"gate": {**SPEC["gate"], "benchmark": {"request_timeout_s": float("inf")}}},
            "scheduled": {"schedule": "every day"},
            "february": {"schedule": "0 0 30 2 *"},
            "backtracks": {"gate": {**SPEC["gate"], "smoke": [{"prompt": "?", "match": "regex", "answer": "(?=a)"}]}},
        }.items()
    },
}


def test_whatever_one_file_does_the_other_models_keep_their_dags(specs, monkeypatch):
    for name, data in HOSTILE_FILES.items():
        (specs / f"{name}.yaml").write_bytes(data)
    (specs / "folder.yaml").mkdir()
    os.mkfifo(specs / "fifo.yaml")

    found = bag(specs, monkeypatch)

    assert set(found.dags) == {"release__demo", "rollback__demo", "remove_failed_pods", "retention"}
    ((file, text),) = found.import_errors.items()
    assert file.endswith("broken_specs.py")
    assert [name for name in (*HOSTILE_FILES, "folder", "fifo") if f"{name}.yaml" not in text] == []
    assert len(text) < 64_000


def test_a_spec_whose_dag_cannot_be_made_costs_that_model_only(specs):
    (specs / "other.yaml").write_text(yaml.safe_dump({**SPEC, "name": "other"}))

    def make(spec, _):
        if spec.name == "demo":
            raise OverflowError("date value out of range")
        return DAG(dag_id=spec.name, schedule=None, auto_register=False)

    dags = make_dags(specs, [make])

    assert set(dags.made) == {"other"}
    assert "demo.yaml: OverflowError: date value out of range" in dags.broken[specs / "demo.yaml"]


@pytest.mark.parametrize("written", ["second", '"\\x73econd"'], ids=["plainly", "escaped"])
def test_a_task_reads_the_spec_of_its_own_model_alone(specs, monkeypatch, written):
    text = (specs / "demo.yaml").read_text()
    (specs / "second.yaml").write_text(text.replace("name: demo", f"name: {written}"))
    (specs / "third.yaml").write_text(text.replace("name: demo", "name: third"))
    os.mkfifo(specs / "fifo.yaml")
    monkeypatch.setenv("SLIPWAY_SPECS", str(specs))

    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, "release__second")
    found = DagBag(str(REPOSITORY / "dags" / "releases.py"))

    assert found.import_errors == {}
    assert set(found.dags) == {"release__second"}


@pytest.mark.parametrize("file", ["releases.py", "broken_specs.py"])
def test_a_folder_of_specs_that_does_not_exist_is_an_import_error_that_says_so(tmp_path, monkeypatch, file):
    monkeypatch.setenv("SLIPWAY_SPECS", str(tmp_path / "none"))

    found = DagBag(str(REPOSITORY / "dags" / file))

    (error,) = found.import_errors.values()
    assert f"there is no folder of release specs: found {tmp_path / 'none'}" in error


def test_every_mutated_spec_that_is_accepted_becomes_a_dag_that_airflow_can_store(specs, monkeypatch):
    monkeypatch.setenv("SLIPWAY_SPECS", str(specs))

    shipped = [load_yaml(file.read_text()) for file in sorted((REPOSITORY / "specs").glob("*.yaml"))]
    for number, data in enumerate(mutants(shipped, 300, dice())):
        (specs / f"{number}.yaml").write_bytes(data)

    dags = make_dags(specs, [release_dag])

    assert len(dags.made) > 0
    assert [reason for reason in dags.broken.values() if "report it" in reason] == []
    for dag in dags.made.values():
        json.dumps(DagSerialization.to_dict(dag))


SCHEDULES = [
    *PRESETS, "0 3 * * *", "*/15 8-18 * * mon-fri", "0 0 L * *", "0 9 * * MON#1", "0 0 29 2 *", "0 0 * * L5", "0 0 1 1 ?",
    "0 0 30 2 *", "0 0 31 4,6 *", "*/0 * * * *", "61 * * * *", "* * * *", "0 0 * * * *", "R R * * *", "h h * * *", "@never",
    "", " ", "\n", "x", "5-1 * * * *", "0 0 * * 8", "0 0 * * L5#2", "1,2,3,x * * * *", "0 0 * jan,feb *", "0 0 LW * *",
]  # fmt: skip
FIELDS = [
    "*",
    "0",
    "59",
    "60",
    "1-5",
    "5-1",
    "*/2",
    "*/0",
    "L",
    "?",
    "mon",
    "jan",
    "1#2",
    "L5",
    "r",
    "h",
    "1,2",
    ",",
    "-",
    "1/2",
]


def test_a_schedule_that_a_spec_may_have_is_one_that_airflow_runs():
    rng = random.Random(1)  # noqa: S311
    texts = SCHEDULES + [" ".join(rng.choices(FIELDS, k=rng.choice([4, 5, 5, 5, 6]))) for _ in range(2000)]
    accepted = []
    for text in texts:
        try:
            accepted.append(check_schedule(text))
        except ValueError:
            continue

    assert {"@daily", "@once", "0 9 * * MON#1", "0 0 29 2 *"} <= set(accepted)
    assert not {"0 0 30 2 *", "R R * * *", "@never", "*/0 * * * *"} & set(accepted)
    assert {*cron_presets, "@once", "@continuous"} == PRESETS
    for text in set(accepted) - {"@once", "@continuous"}:
        for timetable in (CronDataIntervalTimetable(text, "UTC"), CronTriggerTimetable(text, timezone="UTC")):
            timetable.validate()
            window = TimeRestriction(earliest=datetime(2026, 1, 1), latest=None, catchup=False)
            assert timetable.next_dagrun_info(last_automated_data_interval=None, restriction=window) is not None


def test_airflow_executes_the_plugin_file_and_no_other():
    found = [str(path) for path in find_path_from_directory(str(REPOSITORY / "plugins"), ".airflowignore")]

    assert [path.rpartition("/")[2] for path in found if path.endswith(".py")] == ["slipway_plugin.py"]


ROOM = {**SPEC["engine"], "kind": "vllm", "gpu": "NVIDIA-L4", "options": {"max_loras": 2, "max_lora_rank": 8}}


def test_a_model_whose_server_has_room_for_adapters_has_a_dag_that_changes_them(specs, monkeypatch):
    spec = {**SPEC, "quantization": {"format": "none"}, "engine": ROOM}
    (specs / "demo.yaml").write_text(yaml.safe_dump(spec))
    found = bag(specs, monkeypatch)

    dag = found.dags["adapters__demo"]
    assert (found.import_errors, set(found.dags) - {"adapters__demo"}) == (
        {},
        set(bag_without_drill(specs, monkeypatch)),
    )
    steps = [task.task_id for task in dag.topological_sort()]
    assert [step for step in steps if step != "sign-adapters"] == ["fetch-adapters", "load-adapters"]
    assert ("sign-adapters" in steps) == (current_site().signing is not None)
    assert (dict(dag.params), dag.max_active_runs) == ({"to": "spec", "reason": ""}, 1)
