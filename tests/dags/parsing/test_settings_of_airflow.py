"""Settings of Airflow that the laptop's stack and the manifests write: Airflow ignores a name that it does not have."""

import configparser
from pathlib import Path

import pytest
import yaml
from airflow.configuration import retrieve_configuration_description

from local.airflow.settings import AirflowHome

REPOSITORY = Path(__file__).resolve().parents[3]
KNOWN = retrieve_configuration_description(include_providers=False)


def of_the_laptop(folder):
    home = AirflowHome(folder, REPOSITORY, 8080, 8081)
    home.write()
    parser = configparser.ConfigParser()
    parser.read(home.configuration_file)
    return {section: dict(parser[section]) for section in parser.sections()}


@pytest.mark.parametrize("file", ["", "k8s_manifests/airflow/values.yaml", "local/kind/airflow.values.yaml"])
def test_every_setting_is_one_that_airflow_has(file, tmp_path):
    written = yaml.safe_load((REPOSITORY / file).read_text())["config"] if file else of_the_laptop(tmp_path)

    unknown = {f"{section}.{name}" for section, options in written.items() for name in options} - {
        f"{section}.{name}" for section, options in KNOWN.items() for name in options["options"]
    }

    assert unknown == set()


@pytest.mark.parametrize("file", ["", "k8s_manifests/airflow/values.yaml", "local/kind/airflow.values.yaml"])
def test_a_task_outlasts_an_api_that_is_busy_or_restarts(file, tmp_path):
    written = yaml.safe_load((REPOSITORY / file).read_text())["config"] if file else of_the_laptop(tmp_path)

    assert float(written["workers"]["execution_api_timeout"]) == 60
    assert int(written["workers"]["execution_api_retries"]) == 10
