"""The wheel in the two minor versions of Airflow before the pinned one, with what pip takes for its extra there."""

import pytest

from tests.airflows.environments import OLDER
from tests.local.packaging.plain_airflow import DAGS, listed


@pytest.mark.parametrize("version", OLDER)
def test_an_older_airflow_installs_the_extra_and_lists_dags_plugin_and_provider(version, airflow_of, tmp_path):
    found = listed(airflow_of(version), tmp_path)

    assert found["providers"]["apache-airflow-providers-cncf-kubernetes"]
    assert (found["dags"], found["errors"]) == (DAGS, [])
    assert "slipway" in found["plugins"]
    assert found["providers"]["slipway-models"] == "0.1.0"
