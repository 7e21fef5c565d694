"""Specs in slices, each read by a dag-processor of its own: together they are all specs, and none is read twice."""

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID

from slipway.airflow.specs import Slice, read_specs
from tests.fakes.releases import SPEC
from tests.support.paths import REPOSITORY

NAMES = tuple(f"model-{number}" for number in range(12))
WRITTEN = {
    "plainly": "name: {}",
    "quoted": "name: '{}'  # the model",
    "escaped": '"name": "{}"',
    "on two lines": "name:\n  {}",
}


@pytest.fixture
def specs(tmp_path, monkeypatch):
    """Twelve specs, each of the ways to write a name among them."""
    text = yaml.safe_dump(SPEC)
    for number, name in enumerate(NAMES):
        written = list(WRITTEN.values())[number % len(WRITTEN)].format(name)
        (tmp_path / f"{number}.yaml").write_text(text.replace("name: demo", written))
    monkeypatch.setenv("SLIPWAY_SPECS", str(tmp_path))
    return tmp_path


def bags(monkeypatch, of, file=""):
    """What each slice's dag-processor reads."""
    for number in range(1, of + 1):
        monkeypatch.setenv("SLIPWAY_SLICE", f"{number}/{of}")
        yield DagBag(str(REPOSITORY / "dags" / file))


def test_each_dag_is_in_one_slice_and_those_of_no_model_in_the_first(specs, monkeypatch):
    found = [set(bag.dags) for bag in bags(monkeypatch, 3)]

    assert sorted(dag for each in found for dag in each) == sorted(
        ["remove_failed_pods", "retention", *(f"{kind}__{name}" for name in NAMES for kind in ("release", "rollback"))]
    )
    assert all(len(each) > 2 for each in found)
    assert {"remove_failed_pods", "retention"} <= found[0]
    for each in found:
        assert {dag.removeprefix("release__") for dag in each if dag.startswith("release__")} == {
            dag.removeprefix("rollback__") for dag in each if dag.startswith("rollback__")
        }


def test_a_file_of_another_slice_is_not_parsed(specs):
    own = Slice(1, 3)
    other = next(name for name in NAMES if name not in own)
    (specs / "broken.yaml").write_text(f"name: {other}\nnonsense: true\n")

    assert specs / "broken.yaml" not in read_specs(specs, part=own).broken


def test_a_broken_spec_is_reported_by_one_slice(specs, monkeypatch):
    (specs / "broken.yaml").write_text("name: model-x\nnonsense: true\n")
    (specs / "unreadable.yaml").write_text("{")

    texts = [text for bag in bags(monkeypatch, 3, "broken_specs.py") for text in bag.import_errors.values()]

    assert sum(text.count("broken.yaml") > 0 for text in texts) == 1
    assert sum(text.count("unreadable.yaml") > 0 for text in texts) == 1


def test_two_files_with_one_name_are_found_whatever_their_slice(specs):
    (specs / "twin.yaml").write_text((specs / "0.yaml").read_text())

    broken = [read_specs(specs, part=Slice(number, 3)).broken for number in (1, 2, 3)]

    assert sorted(len(each) for each in broken) == [0, 0, 1]


def test_the_process_of_a_task_finds_its_dag_whatever_the_slice(specs, monkeypatch):
    other = next(name for name in NAMES if name not in Slice(1, 3))
    monkeypatch.setenv("SLIPWAY_SLICE", "1/3")
    monkeypatch.setenv(_AIRFLOW_PARSING_CONTEXT_DAG_ID, f"release__{other}")

    assert f"release__{other}" in DagBag(str(REPOSITORY / "dags" / "releases.py")).dags


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/1001", "one"])
def test_a_slice_that_cannot_be_is_an_import_error_that_says_so(specs, monkeypatch, text):
    monkeypatch.setenv("SLIPWAY_SLICE", text)

    found = DagBag(str(REPOSITORY / "dags" / "releases.py"))

    assert found.dags == {}
    (error,) = found.import_errors.values()
    assert f"SLIPWAY_SLICE is '{text}'" in error
    assert "2/8" in error
