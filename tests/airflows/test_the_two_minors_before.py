"""The wheel in the two minor versions of Airflow before the pinned one, with what pip takes for its extra there."""

import sys

import pytest

from tests.local.packaging.conftest import uv
from tests.local.packaging.plain_airflow import DAGS, listed


@pytest.mark.parametrize("version", ["3.2.2", "3.1.8"])
def test_an_older_airflow_installs_the_extra_and_lists_dags_plugin_and_provider(version, wheel, tmp_path):
    python = tmp_path / "environment" / "bin" / "python"
    uv("venv", "--quiet", "--python", sys.executable, tmp_path / "environment")
    uv("pip", "install", "--quiet", "--python", python, f"apache-airflow=={version}", f"{wheel}[airflow]")

    found = listed(python, tmp_path)

    assert found["providers"]["apache-airflow-providers-cncf-kubernetes"]
    assert (found["dags"], found["errors"]) == (DAGS, [])
    assert "slipway" in found["plugins"]
    assert found["providers"]["slipway-models"] == "0.1.0"
