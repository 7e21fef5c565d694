"""The pinned Airflow with the wheel and nothing else of the project; tests/airflows has the two minors before it."""

import pytest

from tests.local.packaging.plain_airflow import DAGS, listed
from tests.support.paths import ENVIRONMENTS
from tests.support.uv import uv


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The wheel alone, beside the environment."""
    folder = tmp_path_factory.mktemp("site-packages")
    uv("pip", "install", "--quiet", "--no-deps", "--target", folder, wheel)
    return folder


@pytest.fixture(scope="module")
def found(installed, tmp_path_factory):
    python = ENVIRONMENTS / "airflow" / "bin" / "python"
    return listed(python, tmp_path_factory.mktemp("airflow"), PYTHONPATH=str(installed))


def test_a_dag_file_of_three_lines_has_the_dags_of_every_spec_and_of_the_site(found, installed):
    assert (found["dags"], found["errors"]) == (DAGS, [])
    assert [file for file in found["own"] if not file.startswith(str(installed))] == []


def test_airflow_lists_the_plugin_and_the_provider_and_finds_the_page(found):
    assert "slipway" in found["plugins"]
    assert "no model that you may see" in found["page"]
    assert found["providers"]["slipway-models"] == "0.1.0"
