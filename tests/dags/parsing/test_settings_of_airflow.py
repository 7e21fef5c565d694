"""Settings of Airflow that the laptop's stack and the manifests write: Airflow ignores a name that it does not have."""

import configparser
import re
import subprocess
import sys

import pytest
from airflow.configuration import retrieve_configuration_description

from local.airflow.settings import AirflowHome
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

SETTINGS = REPOSITORY / "k8s_manifests/airflow/settings.yaml"
COMMON = load_yaml(SETTINGS.read_text())["config"]
KNOWN = {
    f"{section}.{name}"
    for section, each in retrieve_configuration_description(include_providers=False).items()
    for name in each["options"]
}
FOR_TWO_CPUS = "scheduler.scheduler_idle_sleep_time"
"""The one that the laptop sets otherwise: there the scheduler and the steps share the CPUs."""
OF_A_CHART = ["k8s_manifests/airflow/values.yaml", "local/kind/airflow.values.yaml"]


def names(settings):
    return {f"{section}.{name}" for section, options in settings.items() for name in options}


def of_the_laptop(folder):
    home = AirflowHome(folder, REPOSITORY, 8080, 8081)
    home.write()
    return read(home.configuration_file.read_text())


def of_the_image():
    script = REPOSITORY / "images/airflow/as_airflow_cfg.py"
    return read(subprocess.run([sys.executable, script, SETTINGS], check=True, capture_output=True, text=True).stdout)


def of_variables(file):
    found = re.findall(r"AIRFLOW__([A-Z_]+?)__([A-Z_]+)", (REPOSITORY / file).read_text())
    return {f"{section}.{name}".lower() for section, name in found}


def read(text):
    parser = configparser.ConfigParser()
    parser.read_string(text)
    return {section: dict(parser[section]) for section in parser.sections()}


@pytest.mark.parametrize("file", ["k8s_manifests/airflow/settings.yaml", *OF_A_CHART])
def test_every_setting_of_the_chart_is_one_that_airflow_has(file):
    written = load_yaml((REPOSITORY / file).read_text())["config"]

    assert names(written) - KNOWN == set()


def test_every_setting_of_the_laptop_is_one_that_airflow_has(tmp_path):
    written = of_the_laptop(tmp_path)

    assert names(written) - KNOWN == set()


def test_the_laptop_and_the_image_have_what_is_the_same_everywhere(tmp_path):
    laptop, image = of_the_laptop(tmp_path), of_the_image()
    expected = {section: {name: str(value) for name, value in each.items()} for section, each in COMMON.items()}

    assert image == expected
    assert {
        f"{section}.{name}"
        for section, options in expected.items()
        for name, value in options.items()
        if laptop[section][name] != value
    } == {FOR_TWO_CPUS}


@pytest.mark.parametrize("file", OF_A_CHART)
def test_no_values_of_the_chart_repeat_what_is_the_same_everywhere(file):
    assert names(COMMON) & names(load_yaml((REPOSITORY / file).read_text())["config"]) == set()


@pytest.mark.parametrize("file", ["docker-compose.yaml", "images/airflow/Dockerfile", OF_A_CHART[1]])
def test_no_variable_repeats_what_is_the_same_everywhere(file):
    found = of_variables(file)

    assert found
    assert found & names(COMMON) == set()


def test_the_page_for_other_airflows_judges_every_setting():
    page = (REPOSITORY / "docs/your-airflow.md").read_text()
    judged = set(re.findall(r"^\| `(\w+\.\w+)` \|", page, re.MULTILINE))

    assert names(COMMON) - judged == set()
    assert judged - KNOWN == set()


def test_a_task_outlasts_an_api_that_is_busy_or_restarts():
    assert COMMON["workers"]["execution_api_timeout"] == 60
    assert COMMON["workers"]["execution_api_retries"] == 10
