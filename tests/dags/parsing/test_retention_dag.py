"""The DAG `retention` runs when the site file says so."""

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag

from slipway.airflow.site import current_site
from tests.dags.places import SITE
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml


@pytest.fixture
def of_site(tmp_path, monkeypatch):
    """The DAG as Airflow makes it for a site with these fields."""

    def make(**fields):
        site = tmp_path / "site.yaml"
        site.write_text(yaml.safe_dump({**load_yaml(SITE.read_text()), **fields}))
        monkeypatch.setenv("SLIPWAY_SITE", str(site))
        current_site.cache_clear()
        found = DagBag(str(REPOSITORY / "dags" / "releases.py"))
        assert found.import_errors == {}
        return found.dags["retention"]

    yield make
    current_site.cache_clear()


def schedule(dag):
    return dag.schedule


def test_it_has_the_schedule_of_the_site(of_site):
    assert schedule(of_site(retention={})) == "41 4 * * *"
    assert schedule(of_site(retention={"schedule": "0 2 * * 0"})) == "0 2 * * 0"


@pytest.mark.parametrize("fields", [{}, {"retention": {"schedule": None}}])
def test_it_runs_only_by_hand_where_the_site_has_no_schedule(of_site, fields):
    assert schedule(of_site(**fields)) is None


def test_its_runs_delete_unless_they_are_asked_not_to(of_site):
    dag = of_site(retention={})

    assert dict(dag.params) == {"dry_run": False}
    assert (dag.catchup, dag.max_active_runs) == (False, 1)
    assert [task.task_id for task in dag.tasks] == ["retention"]
